"""Compile the machine code of the fleet ahead of its first use.

For a process that starts others, which then find the code on the disk, and where a first request must not wait for it.
"""

from __future__ import annotations

from wva.sim.fleet.compiled import forget_others
from wva.sim.fleet.engine import DrivenEngine
from wva.sim.fleet.parameters import PRESETS
from wva.sim.fleet.requests import UserRequest
from wva.sim.fleet.service import ModelService
from wva.sim.fleet.transfer import KvTransfer
from wva.sim.fleet.users import GatewaySettings


def prepare() -> None:
    """Call every compiled function once: about 20 s of work the first time, less than 1 s when the disk has the code.

    Where nothing is compiled it does nothing of note.
    """
    parameters = PRESETS["H100"]
    engine = DrivenEngine(parameters)
    for number in (1, 2):
        engine.submit(UserRequest(number, 0.0, 10, 10), at_seconds=0.0)
    engine.advance(0.1)
    engine.sample()
    engine.cancel(2)
    for transfer in (None, KvTransfer(1e-5)):
        service = ModelService(GatewaySettings(transfer=transfer))
        row = service.add(service.add_variant(parameters, capacity=1.0), ready_at_seconds=0.0)
        service.settle()
        service.advance(1.0)
        service.scrape(row)
    forget_others()

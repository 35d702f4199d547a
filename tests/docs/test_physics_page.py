"""The numbers about the engine in the prose of docs/physics.md are those of the simulation."""

import re

from tests.docs.rendering import DOCS
from wva.sim.fleet.accelerators import engine_parameters
from wva.sim.fleet.measurement import OfferedLoad, measure
from wva.sim.fleet.published import CURRENT, simulated

PAGE = re.sub(r"\s+", " ", (DOCS / "physics.md").read_text())


def test_independent_check():
    """The page has the highest rate of the upstream benchmark's replica, between minutes 5 and 20 of a rush."""
    engine = engine_parameters("H100", "Qwen3-32B", tensor_parallel=2)
    served = [
        measure(engine, OfferedLoad(4000, 1000, requests=3000, seconds=seconds)).requests_per_second * seconds
        for seconds in (300.0, 1200.0)
    ]
    assert f"serves {(served[1] - served[0]) / 900:.2f} requests/s at most" in PAGE


def test_first_tokens_of_cached_prompts():
    """The page says how many milliseconds too early the simulated first tokens come."""
    missing = [
        1000 * (each.value - simulated(each)) for each in CURRENT if each.figure == "ttft" and each.source == "blis"
    ]
    assert sum(10 < each < 30 for each in missing) == len(missing) - 1, missing
    assert "10 to 30 ms too short" in PAGE

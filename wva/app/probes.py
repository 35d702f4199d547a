"""The server of the probes, which answers from the first second on, while the rest of the process still starts."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Self

from wva.instruments import Instruments
from wva.serve.address import Address
from wva.serve.http import Server
from wva.serve.pages import ProbeCheck, probes_handler


class Probes:
    """Listens for the whole life of the process; the part that knows most names what is not ready. An async context."""

    def __init__(self, address: Address, *, instruments: Instruments, not_ready: ProbeCheck) -> None:
        """Prepare; nothing listens before ``__aenter__``."""
        self.address = address
        self._not_ready = not_ready
        self._unhealthy: ProbeCheck = list
        handler = probes_handler(self._reasons, unhealthy=self._faults)
        self._server = Server(handler, address, name="probes", instruments=instruments)
        self._stack = AsyncExitStack()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    def follow(self, not_ready: ProbeCheck, unhealthy: ProbeCheck) -> None:
        """Ask other parts from now on."""
        self._not_ready, self._unhealthy = not_ready, unhealthy

    async def __aenter__(self) -> Self:
        """Listen. Raises AddressError when the address is taken or not ours."""
        await self._stack.enter_async_context(self._server)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Stop listening; a second time does nothing."""
        await self._stack.aclose()

    def _reasons(self) -> list[str]:
        return self._not_ready()

    def _faults(self) -> list[str]:
        return self._unhealthy()

"""Where a server listens: the text of a setting, and the sockets of an address."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from dataclasses import dataclass
from typing import Final

from wva.numbers import Whole, shown

_NO_IPV6: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_PORT: Final = Whole(0, 65535)


class AddressError(Exception):
    """A bind address that cannot be used. The message names it."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; ``host`` None means every interface."""

    host: str | None
    port: int

    @staticmethod
    def parse(text: str, *, setting: str) -> Address | None:
        """Return the address of ``host:port`` or ``:port``; None for ``0`` or empty, which mean no server.

        Raises AddressError, which names ``setting``.
        """
        if text in {"", "0"}:
            return None
        host, separator, port = text.rpartition(":")
        number = _PORT.find(port) if separator and port.isdecimal() else None
        if number is None:
            raise AddressError(f"{setting}={shown(text)}: expected host:port, :port, or 0 to switch it off")
        return Address(host.strip("[]") or None, number)

    async def bind(self, name: str, *, backlog: int) -> list[socket.socket]:
        """Return listening sockets, one for each address of the host, all with the same port.

        Raises AddressError, which names the server by ``name``.
        """
        sockets: list[socket.socket] = []
        try:
            if self.host is None:
                if socket.has_dualstack_ipv6():  # then one socket serves both families
                    try:
                        return [_listening(("", self.port), socket.AF_INET6, backlog, dual=True)]
                    except OSError as error:
                        if error.errno not in _NO_IPV6:  # the kernel knows IPv6, but the machine has no such address
                            raise
                return [_listening(("", self.port), socket.AF_INET, backlog)]
            loop = asyncio.get_running_loop()
            address_infos = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            port = self.port
            for family, *_, host_port in dict.fromkeys(address_infos):
                sockets.append(_listening((str(host_port[0]), port), family, backlog))
                port = int(sockets[0].getsockname()[1])
        except (OSError, UnicodeError) as error:
            for listening in sockets:
                listening.close()
            if isinstance(error, OSError) and error.errno is not None and not isinstance(error, socket.gaierror):
                reason = os.strerror(error.errno)  # asyncio adds the address to its text, which is in the message below
            else:
                reason = str(getattr(error, "strerror", None) or error)
            raise AddressError(f"cannot listen on {self.host or ''}:{self.port} for {name}: {reason}") from error
        return sockets


def _listening(host_port: tuple[str, int], family: int, backlog: int, *, dual: bool = False) -> socket.socket:
    listening = socket.create_server(host_port, family=family, backlog=backlog, dualstack_ipv6=dual)
    listening.setblocking(False)
    return listening

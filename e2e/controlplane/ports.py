"""Free loopback ports for servers that want to know their port before they start.

Ports are drawn from below the kernel's ephemeral range: otherwise an outgoing connection of any process may take the
port of a server during the second in which it restarts.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable

_FIRST, _LAST = 20000, 32000


def free_ports(names: Iterable[str]) -> dict[str, int]:
    """Return one free TCP port of 127.0.0.1 for each name, all different."""
    ports: dict[str, int] = {}
    for name in names:
        ports[name] = free_port(taken=ports.values())
    return ports


def free_port(*, taken: Iterable[int] = ()) -> int:
    """Return a TCP port of 127.0.0.1 on which no process listens and which is not in ``taken``."""
    avoided = set(taken)
    for port in random.sample(range(_FIRST, _LAST), 500):
        if port not in avoided and _is_free(port):
            return port
    raise OSError(f"no free port between {_FIRST} and {_LAST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: an old TIME_WAIT does not matter
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True

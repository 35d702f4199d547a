"""A TCP relay between the program under test and a server. A test can cut it or silence it.

The bytes go through untouched (TLS included), so both ends see what a broken network shows them: a cut connection is
reset and new ones are refused; a silent one stays open and carries no more bytes, as behind a lost NAT entry.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

_BYTES = 64 * 1024
_RESET = struct.pack("ii", 1, 0)  # linger for 0 s: close sends a reset


class _RelayedConnection:
    """Two sockets and the threads that copy between them."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.silent = False
        self._sockets = (client, server)
        self._threads = [
            threading.Thread(target=self._copy, args=pair, daemon=True) for pair in ((client, server), (server, client))
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Reset both sides."""
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in self._sockets:
            end.close()

    def _copy(self, origin: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := origin.recv(_BYTES):
                if not self.silent:
                    target.sendall(data)
        if not self.silent:
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_WR)


class Relay:
    """Listens on loopback and forwards to ``target`` (host:port)."""

    def __init__(self, target: str) -> None:
        """Listen; nothing is accepted before ``run``."""
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[_RelayedConnection] = []
        self._lock = threading.Lock()
        self._refusing = False
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def run(self) -> None:
        """Accept until closed."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._take(client)

    def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        with self._lock:
            self._refusing = True
            self._drop()

    def restore(self) -> None:
        """Accept connections again."""
        with self._lock:
            self._refusing = False

    def silence(self) -> None:
        """Let all open connections stay open without carrying another byte. New connections work."""
        with self._lock:
            for connection in self._connections:
                connection.silent = True

    def close(self) -> None:
        """Stop listening and reset all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            self._drop()

    def _take(self, client: socket.socket) -> None:
        if not self._refusing:
            with contextlib.suppress(OSError):
                self._connections.append(
                    _RelayedConnection(client, socket.create_connection(self._target, timeout=None))
                )
                return
        with contextlib.suppress(OSError):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        client.close()

    def _drop(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()


@contextlib.contextmanager
def relaying(target: str) -> Iterator[Relay]:
    """Relay to ``target`` inside the block."""
    relay = Relay(target)
    thread = threading.Thread(target=relay.run, name="relay")
    thread.start()
    try:
        yield relay
    finally:
        relay.close()
        thread.join()

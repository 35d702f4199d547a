"""Processes that are addressed by id, never by name.

In: a name, a command line, an environment. Out: a running process with a log file of its own, which a test can stop,
kill, pause, resume and restart. A small file records the id and the start time of the process, so that another test
worker or the watchdog can act on it, too. The start time tells the process from a later one with the same id. Signals
go through a pid file descriptor, so they never reach another process.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

_POLL_SECONDS = 0.05
_KILL_TIMEOUT_SECONDS = 10.0
_ALL_GRACE_SECONDS = 2.0  # servers that stop at the same time would otherwise wait for each other


class ProcessError(Exception):
    """A process ended or did not become ready; the text carries the end of its log."""


class ServerProcess:
    """One process of a directory: log in ``logs/NAME.log``, record in ``processes/NAME.json``."""

    def __init__(
        self, name: str, *, directory: Path, argv: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> None:
        """Describe the process without starting it; ``environment`` is added to the inherited one."""
        self.name = name
        self.argv = [str(argument) for argument in argv]
        self.environment = dict(environment or {})
        self.log_path = directory / "logs" / f"{name}.log"
        self._record_path = directory / "processes" / f"{name}.json"

    @classmethod
    def recorded(cls, record: Path) -> ServerProcess:
        """Return the process of a record file, for stopping it; the command line is not recorded."""
        return cls(record.stem, directory=record.parent.parent, argv=())

    def start(self) -> None:
        """Start the process in a session of its own, appending to its log. An error if it runs already."""
        if self.running:
            raise ProcessError(f"{self.name} runs already")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self._record_path.parent.mkdir(parents=True, exist_ok=True)
        pid = os.posix_spawn(
            self.argv[0],
            self.argv,
            {**os.environ, **self.environment},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(self.log_path), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=(),  # not the blocked and ignored signals of the parent process
            setsigdef=(signal.SIGPIPE, signal.SIGINT),
        )
        record = {"pid": pid, "start_ticks": start_ticks(pid)}
        # Whoever reads it, also after a kill in this moment, finds a whole record or none.
        whole = self._record_path.with_suffix(".new")
        whole.write_text(json.dumps(record), encoding="utf-8")
        whole.replace(self._record_path)

    @property
    def pid(self) -> int | None:
        """Return the recorded pid; None when the process was never started or was stopped."""
        record = self._record()
        return record[0] if record else None

    @property
    def running(self) -> bool:
        """Return whether the recorded process is alive. A paused process is alive."""
        with self._handle() as handle:
            return handle is not None and not _ended(handle, 0)

    def wait_ready(self, probe: Callable[[], bool], *, timeout_seconds: float = 30) -> None:
        """Wait until ``probe`` returns True; OSError counts as not yet. ProcessError when it ends or takes too long."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            with contextlib.suppress(OSError):
                if probe():
                    return
            if not self.running:
                raise ProcessError(f"{self.name} ended before it was ready; end of {self.log_path}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ProcessError(
                    f"{self.name} was not ready within {timeout_seconds} s; end of {self.log_path}:\n{self.tail()}"
                )
            time.sleep(_POLL_SECONDS)

    def stop(self, *, grace_seconds: float = 10) -> None:
        """Ask the process to end (SIGTERM), kill it after ``grace_seconds``; nothing happens when it does not run."""
        self._end(signal.SIGTERM, grace_seconds)

    def kill(self) -> None:
        """End the process at once, as a crash or the out-of-memory killer would."""
        self._end(signal.SIGKILL, _KILL_TIMEOUT_SECONDS)

    def pause(self) -> None:
        """Stop the process from running without ending it: its sockets stay open, and it sends nothing."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process run again."""
        self._send(signal.SIGCONT)

    def restart(self, *, grace_seconds: float = 10) -> None:
        """Stop and start again with the same command line."""
        self.stop(grace_seconds=grace_seconds)
        self.start()

    def tail(self, lines: int = 20) -> str:
        """Return the last lines of the log; empty when there is none."""
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def _end(self, first_signal: signal.Signals, grace_seconds: float) -> None:
        with self._handle() as handle:
            if handle is not None and not _ended(handle, 0):
                signal.pidfd_send_signal(handle, first_signal)
                signal.pidfd_send_signal(handle, signal.SIGCONT)  # a paused process would not see the other signal
                if not _ended(handle, grace_seconds):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    if not _ended(handle, _KILL_TIMEOUT_SECONDS):
                        raise ProcessError(f"{self.name} survived SIGKILL for {_KILL_TIMEOUT_SECONDS} s")
        if (pid := self.pid) is not None:
            with contextlib.suppress(ChildProcessError):  # started by another worker: its parent reaps it
                os.waitpid(pid, os.WNOHANG)
        self._record_path.unlink(missing_ok=True)

    def _send(self, number: signal.Signals) -> None:
        with self._handle() as handle:
            if handle is None:
                raise ProcessError(f"{self.name} does not run")
            signal.pidfd_send_signal(handle, number)

    def _record(self) -> tuple[int, int] | None:
        try:
            record = json.loads(self._record_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return record["pid"], record["start_ticks"]

    @contextlib.contextmanager
    def _handle(self) -> Iterator[int | None]:
        record = self._record()
        if record is None:
            yield None
            return
        try:
            handle = os.pidfd_open(record[0])
        except ProcessLookupError:
            yield None
            return
        try:
            yield handle if start_ticks(record[0]) == record[1] else None
        finally:
            os.close(handle)


def start_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot, unique with the pid; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(text.rpartition(")")[2].split()[19])  # the name in parentheses may hold spaces: count fields after it


def stop_all(directory: Path, *, besides: int = 0) -> None:
    """Stop every recorded process of ``directory``, the youngest first, except the one with pid ``besides``.

    The youngest is first, so that a client ends before the server that it talks to.
    """
    records = sorted((directory / "processes").glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    processes = [process for process in map(ServerProcess.recorded, records) if process.pid != besides]
    for process in processes:
        with contextlib.suppress(ProcessError):  # already gone
            process._send(signal.SIGTERM)  # noqa: SLF001  # all begin to end at the same time, then each is waited for
    for process in processes:
        process.stop(grace_seconds=_ALL_GRACE_SECONDS)


def _ended(handle: int, timeout_seconds: float) -> bool:
    poller = select.poll()
    poller.register(handle, select.POLLIN)  # a pid file descriptor becomes readable when the process ends
    return bool(poller.poll(timeout_seconds * 1000))

"""One control plane that several test workers share. The last worker to leave stops it.

In: a rendezvous folder that all workers of a run know. The first worker starts the control plane, under a file lock.
Each worker registers as a user with its pid and start time, so that the others do not wait for a killed worker. The
last one stops every process, and removes the folder unless a test failed. If all users end without leaving, a watchdog
process does the same, so that a killed test run leaves no server behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from e2e.controlplane.audit import keep
from e2e.controlplane.build import BuildError
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.layout import Layout
from e2e.controlplane.processes import ServerProcess, start_ticks, stop_all

_log = logging.getLogger(__name__)
_STARTED = "started"
_FAILED = "failed"
_WATCHDOG = "watchdog"


class Session:
    """The rendezvous folder ``root``: its lock, its users, and the control plane in ``root/run``."""

    def __init__(self, root: Path) -> None:
        """Name the folder; nothing is created yet."""
        self.root = root
        self.directory = root / "run"

    def join(self) -> ControlPlane:
        """Register this process as a user and return the control plane, started if need be."""
        with self._lock():
            if self.users() and (self.directory / _STARTED).exists():
                plane = ControlPlane(Layout.load(self.directory))
                self._register()
                return plane
            self._prepare()
            try:
                plane = self._start()
            except Exception:
                self.mark_failed()
                raise
            (self.directory / _STARTED).touch()
            return plane

    def leave(self) -> None:
        """Deregister this process; the last one stops everything and tidies up."""
        with self._lock():
            self._user_file(os.getpid()).unlink(missing_ok=True)
            if not self.users():
                self.end()

    def mark_failed(self) -> None:
        """Keep the logs of this run."""
        if self.directory.exists():
            (self.directory / _FAILED).touch()

    def users(self) -> list[int]:
        """Return the pids of the users that are alive."""
        pids = []
        for file in (self.directory / "users").glob("*"):
            pid, _, ticks = file.name.partition("-")
            if str(start_ticks(int(pid))) == ticks:
                pids.append(int(pid))
        return pids

    def end(self, *, besides: int = 0) -> None:
        """Stop every process except pid ``besides`` and remove the folder, or all but the logs after a failure."""
        stop_all(self.directory, besides=besides)
        keep(self.directory / "data" / "kube-apiserver")
        if not (self.directory / _FAILED).exists():
            shutil.rmtree(self.root, ignore_errors=True)
            return
        shutil.rmtree(self.directory / "data", ignore_errors=True)
        (self.directory / _STARTED).unlink(missing_ok=True)
        if kept := os.environ.get("WVA_E2E_LOGS"):
            shutil.copytree(self.directory / "logs", kept, dirs_exist_ok=True)

    @contextlib.contextmanager
    def locked_if_unused(self) -> Iterator[bool]:
        """Hold the lock and tell whether the control plane has no user."""
        with self._lock():
            yield not self.users()

    def _start(self) -> ControlPlane:
        """Start the control plane; once more if a port was taken meanwhile, or the machine was too busy.

        This hides no defect of the controller: the tests begin after it.
        """
        try:
            return ControlPlane.start(self.directory)
        except BuildError:
            raise
        except Exception:  # noqa: BLE001 - whatever it was, it is logged, and raised if it comes again
            _log.exception("the control plane did not start; once more")
        self._prepare()
        return ControlPlane.start(self.directory)

    def _prepare(self) -> None:
        """Clear the folder, register, and start the watchdog: it must be there before the first server."""
        if self.directory.exists():  # left behind by a run whose users are all dead
            stop_all(self.directory)
            shutil.rmtree(self.directory)
        self._register()
        source = Path(__file__).parents[2]
        ServerProcess(
            _WATCHDOG,
            directory=self.directory,
            argv=[sys.executable, "-m", "e2e.controlplane.watchdog", self.root],
            environment={"PYTHONPATH": str(source)},
        ).start()

    def _register(self) -> None:
        file = self._user_file(os.getpid())
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()

    def _user_file(self, pid: int) -> Path:
        return self.directory / "users" / f"{pid}-{start_ticks(pid)}"

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        path = self.root / "lock"
        while True:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if not _is_same(path, file.fileno()):
                    continue  # the last user removed the folder while this one waited
                yield
                return


def _is_same(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False

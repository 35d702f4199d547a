"""Runs a program as a container would, without a container engine: ``e2e/confined.py --root DIRECTORY -- PROGRAM``.

The root of the program is a new, read-only file system with the files of the image. This machine's shared libraries and
standard library replace those of the base image. There is no shell and no package manager. The program can write only
to ``/tmp``. It has the user id of distroless images and no capabilities, and cannot gain any. It uses the network of
this machine, to reach the servers on loopback.

The program needs a mount namespace of its own. A privileged user creates it directly, any other user through a user
namespace. If the machine allows neither, the exit status is 125, the text says what is missing, and no program runs.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

USER = 65532
REFUSED = 125
NOT_FOUND = 127
HOME = "/home/nonroot"
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAPBSET_DROP = 24
_LAST_CAPABILITY = 40
_SYSTEM = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/hosts", "/etc/resolv.conf", "/etc/ld.so.cache",
    "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/proc",
)  # fmt: skip
_HIDDEN = ("site-packages", "dist-packages", "ensurepip")
_LIBC = ctypes.CDLL(None, use_errno=True)


class ConfinementError(Exception):
    """This machine does not let the test confine a program; the text names the refused step."""


def base_files() -> list[Path]:
    """Return what stands in for the base image: the interpreter, its library folder and the system's libraries."""
    library = Path(str(sysconfig.get_config_var("LIBDIR")), str(sysconfig.get_config_var("INSTSONAME")))
    shared = [library] if library.suffix != ".a" and os.access(library, os.R_OK) else []
    wanted = [Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib")), *shared, *map(Path, _SYSTEM)]
    found = {path for path in wanted if path.exists()}
    return sorted(path for path in found if not found.intersection(path.parents))


class Confinement:
    """A root directory in a mount namespace of our own."""

    def __init__(self, scratch: Path) -> None:
        """Take a new namespace and a folder to mount things in. RefusedError when this machine does not allow it."""
        user, group = os.getuid(), os.getgid()
        if _LIBC.unshare(_CLONE_NEWNS) != 0:
            _call("unshare (user and mount namespace)", _LIBC.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{USER} {user} 1")
            _write("/proc/self/gid_map", f"{USER} {group} 1")
        _mount(None, "/", flags=_REC | _PRIVATE)
        self.root = Path(mkdtemp(prefix="root-", dir=scratch))
        _mount("tmpfs", self.root, kind="tmpfs", options="mode=755")
        for path in ("tmp", HOME.lstrip("/")):
            (self.root / path).mkdir(parents=True)
        _mount("tmpfs", self.root / "tmp", kind="tmpfs", flags=_NOSUID | _NODEV, options="mode=1777")
        self._mounted: list[Path] = []

    def bind(self, source: Path, target: Path) -> None:
        """Show a file or folder of this machine in the root; a link is copied as one."""
        here = self.root / target.relative_to("/")
        here.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            here.symlink_to(source.readlink())
            return
        if source.is_dir():
            here.mkdir(exist_ok=True)
        else:
            here.touch()
        _mount(source, here, flags=_BIND | _REC)
        self._mounted.append(here)

    def lay(self, source: Path, target: Path) -> None:
        """Show a folder as a layer: over what is there, file by file; what is not there yet at once."""
        here = self.root / target.relative_to("/")
        if not here.is_dir() or here.is_symlink():
            self.bind(source, target)
            return
        for entry in sorted(source.iterdir()):
            self.lay(entry, target / entry.name)

    def hide(self, target: Path) -> None:
        """Put an empty folder over one of this machine's, if there is one."""
        here = self.root / target.relative_to("/")
        if here.is_dir():
            _mount("tmpfs", here, kind="tmpfs", flags=_RDONLY)

    def enter(self) -> None:
        """Make everything read-only except ``/tmp``, go in, and become a user without any privilege."""
        for here in self._mounted:
            if not here.is_relative_to(self.root / "proc"):
                _mount(None, here, flags=_REMOUNT | _BIND | _RDONLY | _locked_flags(here))
        _mount(None, self.root, flags=_REMOUNT | _RDONLY)
        os.chroot(self.root)
        os.chdir("/")
        for capability in range(_LAST_CAPABILITY + 1):
            _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
        if os.getuid() != USER:
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)
        _call("prctl (no new privileges)", _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def _locked_flags(path: Path) -> int:
    """Return the flags of a mount that a user namespace must not take away."""
    return os.statvfs(path).f_flag & (_NOSUID | _NODEV | os.ST_NOEXEC)


def _call(what: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise ConfinementError(f"{what}: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="ascii")
    except OSError as error:
        raise ConfinementError(f"{path}: {error.strerror}") from error


def _mount(source: str | Path | None, target: str | Path, *, kind: str = "", flags: int = 0, options: str = "") -> None:
    arguments = [str(value).encode() if value else None for value in (source, target, kind)]
    _call(f"mount of {target}", _LIBC.mount(*arguments, flags, options.encode() or None))


def main(argv: Sequence[str]) -> int:
    """Confine and run; does not return when it succeeds."""
    parser = argparse.ArgumentParser(prog="confined", description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True, help="the files of the image")
    parser.add_argument("--bind", action="append", default=[], metavar="HERE:THERE", help="as a mounted Secret")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("program", nargs="+")
    arguments = parser.parse_args(argv)
    try:
        inside = Confinement(arguments.root.parent)
        for file in base_files():
            inside.bind(file, file)
        for folder in _HIDDEN:
            inside.hide(Path(sysconfig.get_path("stdlib"), folder))
        inside.lay(arguments.root, Path("/"))
        for here, _, there in (pair.partition(":") for pair in arguments.bind):
            inside.bind(Path(here), Path(there))
        inside.enter()
    except ConfinementError as error:
        sys.stderr.write(
            f"cannot run a program confined on this machine: {error}. Run with CAP_SYS_ADMIN, or let users "
            "make user namespaces (user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns).\n"
        )
        return REFUSED
    environment = {"PATH": "/usr/local/bin:/usr/bin", "HOME": HOME, "LANG": "C.UTF-8"}
    environment.update(pair.partition("=")[::2] for pair in arguments.env)
    try:
        os.execve(arguments.program[0], arguments.program, environment)  # noqa: S606 - that is what it is for
    except OSError as error:
        sys.stderr.write(f"{arguments.program[0]}: {error.strerror}\n")
        return NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

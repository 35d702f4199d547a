"""Runs ``pip install``; where a dependency cannot be had, the last line names it, its pin and the registry's word.

tox installs with it. It takes the arguments of ``pip install`` and ends with pip's exit code. Needs nothing but pip.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

_PIN = r"(?P<pin>[A-Za-z0-9._-]+==\S+)"
_STAMP = re.compile(r"^\S+ ", re.MULTILINE)
"""Each line of pip's log begins with a time."""

_REFUSED = re.compile(
    rf"Could not install requirement {_PIN} .*?because of HTTP error (?P<word>.*?)(?: for URL |$)", re.MULTILINE
)
_OTHER_HASH = re.compile(
    rf"DO NOT MATCH THE HASHES.*\n\s+{_PIN} from \S+.*\n\s+(?P<word>Expected .*)\n\s+(?P<got>Got .*)"
)
_ABSENT = re.compile(rf"No matching distribution found for {_PIN}")
_OFFERED = re.compile(r"satisfies the requirement .* \(from versions: (?P<versions>.*)\)")
_VERSIONS = 3
_NO_PAGE = re.compile(r"Could not fetch URL (?P<url>\S+): (?P<word>.*?)(?: - skipping)?$", re.MULTILINE)
_COLLECTING = re.compile(rf"Collecting {_PIN}")
_ALL_COLLECTED = "Installing collected packages"
_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): .+$", re.MULTILINE)


def _name(pin: str) -> str:
    """Return the name of a dependency as the address of its page has it."""
    return re.sub(r"[-_.]+", "-", pin.partition("==")[0]).lower()


def cannot_be_had(log: str) -> str | None:
    """Return the line for a dependency that pip could not get, from pip's log; None if it failed for another reason."""
    log = _STAMP.sub("", log)
    if refused := _REFUSED.search(log):
        return f"{refused['pin']} cannot be had: {refused['word']}"
    if other := _OTHER_HASH.search(log):
        hashes = " ".join(f"{other['word']}, {other['got']}".split())
        return f"{other['pin']} cannot be had: its file does not have the pinned hash: {hashes}"
    if absent := _ABSENT.search(log):
        end = f"/{_name(absent['pin'])}"
        pages = [page["word"] for page in _NO_PAGE.finditer(log) if page["url"].rstrip("/").endswith(end)]
        offered = [offer["versions"].split(", ")[-_VERSIONS:] for offer in _OFFERED.finditer(log)]
        words = [f"newest versions offered: {', '.join(versions)}" for versions in offered[-1:]]
        return f"{absent['pin']} cannot be had: {'; '.join([*words, *pages[-1:]])}"
    collected = _COLLECTING.findall(log)
    errors = _ERROR.findall(log)
    if collected and errors and _ALL_COLLECTED not in log:
        return f"{collected[-1]} cannot be had: {errors[-1]}"
    return None


def main() -> int:
    """Install, and name the dependency that pip could not get."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-I", "-m", "pip", "install", "--log", str(log), *sys.argv[1:]]
        code = subprocess.run(command, check=False).returncode  # noqa: S603 - what tox asks for
        line = cannot_be_had(log.read_text(errors="replace")) if code and log.exists() else None
    if line:
        sys.stderr.write(f"{line}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())

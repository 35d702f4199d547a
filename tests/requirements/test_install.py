"""A dependency that cannot be had is named in the last line, with its pin and the registry's word."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

SCRIPT = Path(__file__).parents[2] / "requirements" / "install.py"
PIN = "absent-dependency==1.2"
FILE = "absent_dependency-1.2-py3-none-any.whl"
PAGE = f'<a href="/files/{FILE}">{FILE}</a>'


@contextmanager
def registry(*, page: str | None, half: bool = False) -> Iterator[str]:
    """Serve the page of a dependency, if there is one, and refuse everything else or send ``half`` of it.

    Yields the address.
    """

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self):
            found = page is not None and self.path == "/simple/absent-dependency/"
            body = (page or "").encode() if found else b""
            self.send_response(200 if found or half else 403)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body) if found or not half else 1000))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def install(tmp_path):
    """Return a function that installs the pinned dependency with options of pip and returns how it ended."""
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(f"{PIN} \\\n    --hash=sha256:{'a' * 64}\n")
    target = tmp_path / "target"

    def run(*options: str) -> tuple[int, list[str]]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        done = subprocess.run(  # noqa: S603 - the script under test
            [sys.executable, SCRIPT, "--retries=0", f"--target={target}", *options, "-r", constraints],
            env=environment | {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stderr.splitlines()

    return run


def test_a_version_that_is_not_there(install, tmp_path):
    """The newest of those that are there are told."""
    code, words = install("--no-index", f"--find-links={tmp_path}")
    assert code == 1
    assert words[-1] == f"{PIN} cannot be had: newest versions offered: none"
    for version in ("0.9", "1.0", "1.1", "1.3"):
        (tmp_path / FILE.replace("1.2", version)).touch()
    _, words = install("--no-index", f"--find-links={tmp_path}")
    assert words[-1] == f"{PIN} cannot be had: newest versions offered: 1.0, 1.1, 1.3"


def test_a_page_that_is_refused(install):
    """The registry's own word is told."""
    with registry(page=None) as address:
        code, words = install(f"--index-url={address}")
    assert code == 1
    assert words[-1].startswith(f"{PIN} cannot be had: newest versions offered: none; 403 Client Error: Forbidden")


def test_a_file_that_is_refused(install):
    """The registry lists the file and does not give it."""
    with registry(page=PAGE) as address:
        code, words = install(f"--index-url={address}")
    assert code == 1
    assert words[-1].startswith(f"{PIN} cannot be had: 403 Client Error: Forbidden")


def test_a_file_of_which_half_arrives(install):
    """The connection ends too early."""
    with registry(page=PAGE, half=True) as address:
        code, words = install(f"--index-url={address}")
    assert code != 0
    assert words[-1].startswith(f"{PIN} cannot be had: ")


def test_a_file_with_another_hash(install, tmp_path):
    """A file that was replaced is no file that can be had."""
    with zipfile.ZipFile(tmp_path / FILE, "w") as wheel:
        wheel.writestr("absent_dependency-1.2.dist-info/METADATA", "Metadata-Version: 2.1\n")
    code, words = install("--no-index", f"--find-links={tmp_path}")
    assert code == 1
    assert words[-1].startswith(f"{PIN} cannot be had: its file does not have the pinned hash: Expected sha256 aaaa")


def test_another_failure_is_left_to_pip(install):
    """Nothing is said of a dependency when the arguments are wrong."""
    code, words = install("--no-such-option")
    assert code == 2
    assert not any("cannot be had" in line for line in words)

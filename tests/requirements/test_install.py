"""The last line of ``install.py`` has the pin of a missing dependency and the answer of the registry."""

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
    """Serve the page of a dependency if there is one.

    Refuse every other request, or send ``half`` of the answer. Yields the address.
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
            """Write no log."""

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
    """Return a function that installs the pinned dependency with options of pip, and returns exit code and stderr."""
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
    """The line has the newest versions that the registry offers."""
    code, words = install("--no-index", f"--find-links={tmp_path}")
    assert code == 1
    assert words[-1] == f"{PIN} cannot be had: newest versions offered: none"
    for version in ("0.9", "1.0", "1.1", "1.3"):
        (tmp_path / FILE.replace("1.2", version)).touch()
    _, words = install("--no-index", f"--find-links={tmp_path}")
    assert words[-1] == f"{PIN} cannot be had: newest versions offered: 1.0, 1.1, 1.3"


def test_a_page_that_is_refused(install):
    """The line has the registry's own error."""
    with registry(page=None) as address:
        code, words = install(f"--index-url={address}")
    assert code == 1
    assert words[-1].startswith(f"{PIN} cannot be had: newest versions offered: none; 403 Client Error: Forbidden")


def test_a_file_that_is_refused(install):
    """The registry lists the file, and refuses to send it."""
    with registry(page=PAGE) as address:
        code, words = install(f"--index-url={address}")
    assert code == 1
    assert words[-1].startswith(f"{PIN} cannot be had: 403 Client Error: Forbidden")


def test_a_file_of_which_half_arrives(install):
    """The connection ends before the whole file is sent."""
    with registry(page=PAGE, half=True) as address:
        code, words = install(f"--index-url={address}")
    assert code != 0
    assert words[-1].startswith(f"{PIN} cannot be had: ")


def test_a_file_with_another_hash(install, tmp_path):
    """The script refuses a file that was replaced."""
    with zipfile.ZipFile(tmp_path / FILE, "w") as wheel:
        wheel.writestr("absent_dependency-1.2.dist-info/METADATA", "Metadata-Version: 2.1\n")
    code, words = install("--no-index", f"--find-links={tmp_path}")
    assert code == 1
    assert words[-1].startswith(f"{PIN} cannot be had: its file does not have the pinned hash: Expected sha256 aaaa")


def test_another_failure_is_left_to_pip(install):
    """With wrong arguments the script names no dependency."""
    code, words = install("--no-such-option")
    assert code == 2
    assert not any("cannot be had" in line for line in words)

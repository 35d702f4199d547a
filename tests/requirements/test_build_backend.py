"""The build of the project ends with a sentence on a Python that is too old, and is hatchling's on others."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "requirements"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

spec = importlib.util.spec_from_file_location("_backend_under_test", FOLDER / "build_backend.py")
backend = importlib.util.module_from_spec(spec)
spec.loader.exec_module(backend)


def hooks(version):
    """Load the backend as pip does, with this version of Python, and print its hooks."""
    program = (
        f"import sys; sys.path.insert(0, {str(FOLDER)!r}); sys.version_info = {version}; "
        "import build_backend; print(*dir(build_backend))"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: S603 - our own code


@pytest.mark.parametrize("version", [(3, 6, 15), (3, 10, 12)])
def test_an_old_python_is_named_at_once(version):
    """The one line names the Python that is needed and the one that it is."""
    ended = hooks(version)
    assert ended.returncode == 1
    assert ended.stderr == (
        f"wva needs Python 3.11 or newer, and this is Python 3.{version[1]}: make the environment with a newer one\n"
    )


def test_other_pythons_have_the_hooks_of_hatchling():
    """A wheel, a source archive and an editable install are built as before."""
    ended = hooks(tuple(sys.version_info[:3]))
    assert {"build_wheel", "build_sdist", "build_editable", "get_requires_for_build_wheel"} <= set(ended.stdout.split())


def test_the_oldest_python_is_the_one_of_the_project():
    """Three places have it."""
    oldest = ".".join(map(str, backend.NEEDED))
    assert PYPROJECT["project"]["requires-python"] == f">={oldest}"
    (required,) = PYPROJECT["build-system"]["requires"]
    assert required.endswith(f"; python_version >= '{oldest}'")
    assert backend.refusal((3, 11, 0)) is None
    assert backend.refusal((4, 0, 0)) is None

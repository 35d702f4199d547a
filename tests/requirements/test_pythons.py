"""Every Python that ``pyproject.toml`` names has an environment of tox, and tox alone needs one of them."""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOX = configparser.ConfigParser(interpolation=None)
TOX.read(ROOT / "tox.ini")


def test_every_python_runs_in_tox():
    """``tox -m pythons`` runs the tests with each."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    named = [f"py{found[1]}{found[2]}" for each in classifiers if (found := re.search(r":: (\d+)\.(\d+)$", each))]
    assert len(named) > 1
    assert TOX["tox"]["labels"].split("=")[1].replace(",", " ").split() == named
    (section,) = [section for section in TOX.sections() if re.match(r"testenv:py\d", section)]
    start, ends = re.fullmatch(r"testenv:(\w+)\{([\d,]+)\}", section).groups()
    assert [start + end for end in ends.split(",")] == named
    assert TOX[section]["commands"] == "{[testenv:tests]commands}"


def test_one_python_is_enough_for_tox_alone():
    """The default is one environment, and a missing Python is skipped where all of them are asked for."""
    assert TOX["tox"]["env_list"] == "check"
    assert TOX["tox"]["skip_missing_interpreters"] == "true"

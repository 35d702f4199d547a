"""Reads recorded cases of the original controller v0.5.1, and counts which of them run.

docs/design/recorded-cases.md describes the files and how the tests compare results. The folder is that of the
environment variable WVA_VECTORS if it is set, else ``data`` beside this file. A predicate on the input selects the
cases that WVA does better (docs/design/recorded-cases.md#cases-that-are-done-better-here) and names the test of the
better behaviour; such cases are counted but not run.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Case = dict[str, Any]

TOLERANCE = 1e-9
FOLDER = Path(os.environ.get("WVA_VECTORS") or Path(__file__).parent / "data")


@dataclass(frozen=True)
class Better:
    """Why WVA differs from a recorded case on purpose (the verdict ``fix``), and the test of WVA's behaviour.

    The test's name is ``file::function``, with a file below ``tests``.
    """

    reason: str
    test: str

    def __post_init__(self) -> None:
        """Remember the test, so that ``test_verdicts`` can check that it exists."""
        BETTER_TESTS.add(self.test)

    def __str__(self) -> str:
        """Return the reason and the test in words for the summary."""
        return f"{self.reason} [{self.test}]"


Verdict = Callable[[Case], Better | None]
BETTER_TESTS: set[str] = set()


@dataclass
class CaseTally:
    """How many cases of a file and section ran, and how many WVA does better, by reason and test.

    ``partly`` counts the cases that ran but were compared only in part, because WVA does the rest better.
    """

    run: int = 0
    better: Counter[str] = field(default_factory=Counter)
    partly: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        """Return the lines for the summary."""
        words = f"{self.run} cases run, {self.better.total()} with the verdict fix, 0 left out"
        fixed = [f"{count} fix: {reason}" for reason, count in sorted(self.better.items())]
        partly = [f"{count} run but for: {reason}" for reason, count in sorted(self.partly.items())]
        return "\n    ".join([words, *fixed, *partly])


TALLIES: dict[str, CaseTally] = {}
_SAME_FORM = {
    ("pipeline", "enforcer"): "enforcer",
    ("pipeline", "limiter"): "limiter",
    ("scale_from_zero", "cases"): "scale_from_zero",
    ("tick", "cases"): "tick",
}
"""Sections, and the areas whose worked examples run with them."""


def tally(name: str, section: str = "cases") -> CaseTally:
    """Return the tally of a file's section."""
    return tally_of(f"golden_{name}.json.gz" if section == "cases" else f"golden_{name}.json.gz {section}")


def tally_of(title: str) -> CaseTally:
    """Return the tally of a title as the summary shows it."""
    return TALLIES.setdefault(title, CaseTally())


@functools.cache
def find(name: str) -> Case | None:
    """Return the content of ``golden_<name>.json.gz``, None if the folder has no such file; callers only read it."""
    path = FOLDER / f"golden_{name}.json.gz"
    if not path.exists():
        return None
    content: Case = json.loads(gzip.decompress(path.read_bytes()))
    return content


def load(name: str) -> Case:
    """Return the content of ``golden_<name>.json.gz``; without the file pytest skips the calling module."""
    content = find(name)
    if content is None:
        pytest.skip(f"golden_{name}.json.gz is not present in {FOLDER}", allow_module_level=True)
    return content


def close(found: float, expected: float) -> bool:
    """Tell whether two numbers agree to 1e-9, relative above 1."""
    return abs(found - expected) <= TOLERANCE * max(1.0, abs(found), abs(expected))


def parameters(
    name: str,
    *,
    section: str = "cases",
    better: Verdict = lambda _: None,
    aspect: str | None = None,
    recorded: bool = True,
) -> list[Any]:
    """Return the cases of a section as parameters; a single skipped one if the file or section does not exist.

    ``better`` returns for a case's input the reason why WVA does it better and the test of that; None runs the case.
    ``aspect`` counts the cases separately, if several tests use the same ones. With ``recorded=False`` the parameters
    are the cases that WVA does better, for a test with the inputs of the recording.
    """
    content = find(name)
    rows = None if content is None else _rows(content, section)
    if rows is None:
        reason = f"golden_{name}.json.gz {section} is not present in {FOLDER}"
        return [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=reason))]
    count = tally(name, aspect or section)
    count.better.clear()
    kept = []
    for number, case in enumerate([*rows, *_further(name, section, rows)]):
        verdict = better(case)
        if (verdict is None) is recorded:
            kept.append(pytest.param(case, id=str(case.get("id", f"{section}-{number:04}"))))
        elif recorded:
            count.better[str(verdict)] += 1
    return kept


def worked_examples(area: str) -> list[Case]:
    """Return the worked examples of an area: their inputs, ``id``, ``expected`` and ``golden_ref``."""
    return [
        {**(row["input"] if isinstance(row["input"], dict) else {"steps": row["input"]}), **_about(row)}
        for row in _examples()
        if row["area"] == area
    ]


def _about(row: Case) -> Case:
    return {"id": row["id"], "expected": row["expected"], "golden_ref": row["golden_ref"]}


@functools.cache
def _examples() -> tuple[Case, ...]:
    path = FOLDER / "engine_vectors.json.gz"
    return tuple(json.loads(gzip.decompress(path.read_bytes()))["examples"]) if path.exists() else ()


def _further(name: str, section: str, rows: list[Case]) -> list[Case]:
    """Return the worked examples that have the form of a section but are not in it."""
    area = _SAME_FORM.get((name, section))
    examples = [] if area is None else worked_examples(area)
    if area == "limiter":
        examples = [{**example, **example["expected"]} for example in examples]
    return [example for example in examples if not any(_same(example, row) for row in rows)]


def _same(example: Case, row: Case) -> bool:
    return all(row.get(key) == value for key, value in example.items() if key not in {"id", "expected", "golden_ref"})


def _rows(content: Case, section: str) -> list[Case] | None:
    rows: list[Case] | None = content.get("sections", {}).get(section, content.get(section))
    return rows


def near(value: float) -> Any:
    """Return a matcher that is equal to every number close to the recorded one."""
    return pytest.approx(value, rel=TOLERANCE, abs=TOLERANCE)

"""The fuzz runner and its mutation of inputs; no test here fuzzes anything."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.__main__ import ROOT, main, run
from tests.fuzz.harness import TARGETS, inputs, play
from tests.fuzz.mutation import mutated


@pytest.mark.parametrize(("unavailable", "status"), [("skip", 0), ("fail", 1)])
def test_without_atheris_the_command_says_that_nothing_was_fuzzed(monkeypatch, capsys, unavailable, status):
    """Without atheris the command fails, unless ``WVA_E2E_UNAVAILABLE`` is skip."""
    monkeypatch.setitem(sys.modules, "atheris", None)
    monkeypatch.setattr(sys, "argv", ["fuzz"])
    monkeypatch.setenv("WVA_E2E_UNAVAILABLE", unavailable)
    assert main() == status
    assert capsys.readouterr().out.startswith("fuzz: NOTHING WAS FUZZED: atheris is not there for ")


def test_ci_repeats_the_last_line_and_no_line_of_tox(monkeypatch, capsys):
    """The pattern in ``.ci/run`` matches the runner's last line, not the lines of tox. Both start with "fuzz:"."""
    (pattern,) = re.findall(r"^grep -hE '(.*)' fuzz$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    monkeypatch.setattr("tests.fuzz.__main__.fuzz", lambda *_: (1_000, ""))
    assert run(["texts", "gateway"], 60, 2, 7) == 0
    assert re.search(pattern, capsys.readouterr().out, re.MULTILINE)
    assert re.search(pattern, "fuzz: NOTHING WAS FUZZED: atheris is not there")
    assert not re.search(pattern, "fuzz: install_deps> python -I requirements/install.py")


def test_the_seed_is_told_and_can_be_given(monkeypatch, capsys):
    """Each run has its own seed, which the last line names; a run with this seed makes the same changes."""
    given = []
    monkeypatch.setattr("tests.fuzz.__main__.unavailable", lambda: "")
    monkeypatch.setattr("tests.fuzz.__main__.fuzz", lambda _, options, __: (given.append(options[-1]), (1, ""))[1])
    for words in ([], [], ["--seed", "7"]):
        monkeypatch.setattr(sys, "argv", ["fuzz", "texts", *words])
        assert main() == 0
    told = [f"-seed={seed}" for seed in re.findall(r", --seed (\d+)$", capsys.readouterr().out, re.MULTILINE)]
    assert told == given
    assert (len(set(given)), given[-1]) == (3, "-seed=7")


def test_an_unknown_target_is_a_usage_error(monkeypatch, capsys):
    """The error names the targets that exist."""
    monkeypatch.setattr(sys, "argv", ["fuzz", "nothing"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert TARGETS[0] in capsys.readouterr().err


def test_an_input_that_takes_too_long_fails():
    """The check measures the CPU time of the thread, so a busy machine changes nothing."""

    class QuadraticTarget:
        """A target whose time grows with the square of the size."""

        @staticmethod
        def check(data):
            """Loop once per pair of bytes."""
            return sum(1 for _ in data for _ in data)

    play(QuadraticTarget, b"x" * 10)
    with pytest.raises(AssertionError, match="6000 bytes took"):
        play(QuadraticTarget, b"x" * 6000)


@given(st.sampled_from(TARGETS), st.data(), st.integers(0, 2**32), st.sampled_from([100, 10_000]))
def test_a_changed_input_fits_and_depends_on_the_seed_alone(name, data, seed, most):
    """The mutation accepts JSON, text and broken bytes, and gives the same result for the same seed."""
    path = data.draw(st.sampled_from(inputs(name)))
    first, again = (
        mutated(path.read_bytes(), most=most, seed=seed, words=["word"], flip=lambda given, size: given[:size])
        for _ in range(2)
    )
    assert first == again
    assert len(first) <= most

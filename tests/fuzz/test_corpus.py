"""Every input of the corpora still passes its check. Fuzzing itself is ``tox -e fuzz``."""

from __future__ import annotations

import pytest

from tests.fuzz.harness import CORPUS, TARGETS, be_quiet, inputs, play, target

CASES = [(name, path) for name in TARGETS for path in inputs(name)]


@pytest.mark.parametrize(("name", "path"), CASES, ids=[f"{name}-{path.name}" for name, path in CASES])
def test_an_input_of_the_corpus(name, path):
    """An input of the corpus passes the check of its target, in time."""
    be_quiet()
    play(target(name), path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_some_inputs_are_what_they_should_be(name):
    """The target accepts at least a fifth of its corpus; otherwise the corpus has an old format."""
    be_quiet()
    taken = [play(target(name), path.read_bytes()) for path in inputs(name)]
    assert sum(map(bool, taken)) >= len(taken) / 5


def test_every_corpus_has_its_target():
    """Every corpus has a target, and every target has a corpus."""
    assert sorted(path.name for path in CORPUS.iterdir()) == sorted(TARGETS)

"""The examples that hypothesis draws: the same in every run, except in nightly runs, which name their seed."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from hypothesis import settings

from tests import conftest


@pytest.fixture
def config(request):
    """Return a configuration of pytest without a seed; hypothesis has taken its own from the real one."""
    assert "hypothesis_seed" in vars(request.config.option)
    return SimpleNamespace(option=SimpleNamespace(hypothesis_seed=None))


def test_every_run_draws_the_same(config, monkeypatch):
    """So a change fails on every machine or on none."""
    monkeypatch.setattr(conftest, "PROFILE", "default")
    assert settings.get_profile("default").derandomize
    conftest.pytest_configure(config)
    assert config.option.hypothesis_seed is None
    head = conftest.pytest_report_header(config)
    assert head == "hypothesis: profile default, the same examples in every run"


def test_a_nightly_run_draws_others_and_names_its_seed(config, monkeypatch):
    """The next run with this option draws the same."""
    assert not settings.get_profile("nightly").derandomize
    monkeypatch.setattr(conftest, "PROFILE", "nightly")
    heads = []
    for seed in (None, None, "7"):
        config.option.hypothesis_seed = seed
        conftest.pytest_configure(config)
        heads.append(conftest.pytest_report_header(config))
    told = [re.fullmatch(r"hypothesis: profile nightly, --hypothesis-seed=(\d+)", head)[1] for head in heads]
    assert (len(set(told)), told[-1]) == (3, "7")

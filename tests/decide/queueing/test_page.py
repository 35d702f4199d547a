"""The page about the queueing model agrees with the code: its example is computed, its numbers are compared."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from tests.builders import variant
from tests.decide.queueing.samples import A100, H100, MODEL, PREMIUM, UNTUNED, Analysis, pod
from wva.decide.analyze.queueing_parameters import DEFAULT_BATCH, FIRM_ERROR, FIRM_OBSERVATIONS, STEADY_SHARE
from wva.decide.queueing.cover import SHRINK_SHARE
from wva.decide.queueing.service import MAX_BATCH, QUEUE_TO_BATCH
from wva.model.decision import Reason
from wva.model.policy import DEFAULT_SLO_MULTIPLIER, Policy
from wva.model.queueing import OBSERVATION_SECONDS, WINDOW

PAGE = (Path(__file__).parents[3] / "docs" / "queueing-model.md").read_text(encoding="utf-8")


def cycles():
    """Return the rows of the example's table as numbers."""
    example = PAGE.split("### Example")[1]
    rows = re.findall(r"^\| \d.*$", example, re.MULTILINE)
    return [[float(cell) for cell in row.strip("|").split("|")] for row in rows]


def computed():
    """Return what the code says of the example, one line per minute."""
    policy = Policy(
        service_targets=(PREMIUM,),
        profiles=(replace(A100, accelerator="A100"), replace(H100, accelerator="H100")),
        queueing=UNTUNED,
    )
    analysis = Analysis(policy)
    lines = []
    for minute, small, large, answered, waiting in cycles():
        pods = {
            variant(name, model=MODEL, accelerator=name.upper(), cost=cost, replicas=int(count)): [
                pod(name, n, success_rate=answered, waiting=waiting) for n in range(int(count))
            ]
            for name, cost, count in (("a100", 40.0, small), ("h100", 100.0, large))
            if count
        }
        opinion = analysis.cycle(pods)
        numbers = ", ".join(
            f"{one.key.name} {len(pods[v])} -> {one.desired} ({one.rate:.4g} requests/s each)"
            for one, v in zip(opinion.variants, pods, strict=True)
        )
        lines.append(f"{minute:g}: {opinion.summary.split(' within')[0]}; {numbers}")
    return lines


def test_the_worked_example_is_what_the_code_computes():
    """The block below the table."""
    printed = re.findall(r"```\n(.*?)```", PAGE.split("### Example")[1], re.DOTALL)[0].splitlines()
    assert computed() == printed


def test_the_numbers_of_the_page_are_those_of_the_code():
    """Thresholds, windows and bounds."""
    for words in (
        f"{FIRM_OBSERVATIONS} observations or more, explained to within {FIRM_ERROR * 100:g} %",
        f"the last {WINDOW} observations (at most {OBSERVATION_SECONDS / 3600:g} h old)",
        f"less than {STEADY_SHARE * 100:g} % of the traffic",
        f"else {DEFAULT_BATCH}.",
        f"at most {QUEUE_TO_BATCH} N waiting",
        f"k = `sloMultiplier` ({DEFAULT_SLO_MULTIPLIER:g})",
        f"at most {SHRINK_SHARE * 100:g} % of the rest is in use",
        f"batch above {MAX_BATCH}",
    ):
        assert words in " ".join(PAGE.split()), words


def test_the_reasons_of_hybrid_mode_exist():
    """As the table names them."""
    assert f"`{Reason.MODEL_BASED.value}`" in PAGE
    assert f"`{Reason.SAFETY_OVERRIDE.value}`" in PAGE

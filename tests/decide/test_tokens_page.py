"""The page about the token analyzer agrees with the code: the tests compute its examples and compare its parameters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.builders import variant
from tests.decide.tokens import capacity, pod, report
from wva.decide.measure import tokens
from wva.model.memory import HISTORY_SECONDS, K2_WINDOW, RECORD_SECONDS
from wva.model.policy import SaturationPolicy
from wva.model.vllm_parameters import V0_BATCHED_TOKENS, V1_BATCHED_TOKENS

PAGE = (Path(__file__).parents[2] / "docs" / "token-analyzer.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"\| Pod \|.*?\n\|[-|]+\n(.*?)\n\n.*?```\n(.*?)```", PAGE, re.DOTALL)
ANSWER = 200.0


@pytest.mark.parametrize(("table", "result"), EXAMPLES, ids=["growth", "night"])
def test_worked_example(table, result):
    """The lines below a table are those for the replicas in the table."""
    pods, costs = {}, {}
    for line in table.splitlines():
        name, owner, cost, *numbers = (cell.strip() for cell in line.strip("|").split("|"))
        size, kv, queue, prompt = map(float, numbers)
        pods.setdefault(owner, []).append(pod(name, size=size, kv=kv, queue=queue, request=(prompt, ANSWER)))
        costs[owner] = float(cost)
    found = capacity(
        *(report(*own, variant=variant(name, replicas=len(own), cost=costs[name])) for name, own in pods.items())
    )
    lines = [
        f"{one.key.name}: {one.ready} x {one.per_replica:.0f} tokens ({one.basis.value}), demand {one.demand:.0f}, "
        f"utilization {one.utilization:.3g}"
        for one in found.variants
    ]
    lines.append(
        f"model: demand {found.demand:.0f} of {found.supply:.0f}, "
        f"required {found.required:.0f}, spare {found.spare:.0f}"
    )
    assert lines == result.splitlines()


def test_both_examples_are_found():
    """If the form of the page changes, the test above must not become empty."""
    assert len(EXAMPLES) == 2


def test_parameters_have_the_defaults_of_the_code():
    """Names as in the ConfigMap, values as in the policy."""
    table = dict(re.findall(r"\| `(\w+)` \| \w \| (\S+) \|", PAGE))
    policy = SaturationPolicy()
    assert {name: float(value) for name, value in table.items()} == {
        "kvCacheThreshold": policy.kv_cache_threshold,
        "queueLengthThreshold": policy.queue_length_threshold,
        "scaleUpThreshold": policy.scale_up_threshold,
        "scaleDownBoundary": policy.scale_down_boundary,
    }


@pytest.mark.parametrize(
    "words",
    [
        f"the first {tokens.RELEARNING_SECONDS / 60:g} minutes",
        f"been seen {tokens.FIRM_OBSERVATIONS} times",
        f"last {K2_WINDOW} observations",
        f"after {HISTORY_SECONDS / 3600:g} hours",
        f"after {RECORD_SECONDS / 86400:g} days",
        f"below {tokens.SHORT_ANSWER:g} tokens, below {tokens.MEDIUM_ANSWER:g}, or more",
        f"else {V1_BATCHED_TOKENS} (V1) or {V0_BATCHED_TOKENS} (V0",
        f"bytes/{tokens.BYTES_PER_TOKEN},",
        f"below {tokens._DRAINING:.0%} of the last minute's peak".replace("%", " %"),
    ],
)
def test_numbers_on_the_page_are_those_of_the_code(words):
    """Each constant stands in a sentence of the page."""
    assert words in " ".join(PAGE.split())

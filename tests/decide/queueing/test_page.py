"""The page about the queueing model agrees with the code: the tests compute its example and compare its numbers."""

from __future__ import annotations

import re
from pathlib import Path

from tests.builders import variant
from tests.decide.queueing.samples import A100, H100, MODEL, PREMIUM, UNTUNED, ModelCycles, pod
from wva.decide.allocate import UNLIMITED, AllocationPolicy, Offer, SharingRule, Stock, Want, allocate
from wva.decide.measure.queueing import (
    ATTAINMENT,
    BELIEVED_SHARE,
    DEFAULT_BATCH,
    DEVIATIONS,
    KV_SHARE,
    MISSED,
    MISSED_BY_SLOW,
    RELAXED,
    WORTH,
)
from wva.model.inventory import AcceleratorPool, Inventory
from wva.model.optimizers import BestEffort
from wva.model.policy import DEFAULT_SLO_MULTIPLIER, Policy
from wva.model.records import replace
from wva.model.variant import ModelKey, VariantKey

PAGE = (Path(__file__).parents[3] / "docs" / "queueing-model.md").read_text(encoding="utf-8")


def cycles():
    """Return the rows of the example's table as numbers."""
    example = PAGE.split("### Example")[1]
    rows = re.findall(r"^\| \d.*$", example, re.MULTILINE)
    return [[float(cell) for cell in row.strip("|").split("|")] for row in rows]


def computed():
    """Return what the code gives for the example, one line per minute."""
    policy = Policy(
        service_targets=(PREMIUM,),
        profiles=(replace(A100, accelerator="A100"), replace(H100, accelerator="H100")),
        queueing=UNTUNED,
    )
    analysis = ModelCycles(policy)
    lines = []
    for minute, small, large, answered, waiting in cycles():
        pods = {
            variant(name, model=MODEL, accelerator=name.upper(), cost=cost, replicas=int(count)): [
                pod(name, n, success_rate=answered, waiting=waiting) for n in range(int(count))
            ]
            for name, cost, count in (("a100", 40.0, small), ("h100", 100.0, large))
            if count
        }
        need = analysis.cycle(pods)
        if need.hold is not None:
            lines.append(f"{minute:g}: {need.hold.message}")
            continue
        takes = ", ".join(
            f"one {key.name} takes {each.per_replica:.4g} ({each.limit})" for key, each in need.capacities.items()
        )
        here = {one.key: len(own) for one, own in pods.items()}
        together = sum(count * need.capacities[key].per_replica for key, count in here.items())
        lines.append(
            f"{minute:g}: {need.demand:.4g} requests/s arrive, {need.rate.backlog:g} wait; "
            f"{takes}; together {together:.4g}"
        )
    return lines


def test_the_worked_example_is_what_the_code_computes():
    """The block below the table is the output of the code."""
    printed = re.findall(r"```\n(.*?)```", PAGE.split("### Example")[1], re.DOTALL)[0].splitlines()
    assert computed() == printed


def rows(title):
    """Return the cells of an example's table, and the lines of the block below it."""
    chapter = PAGE.split(f"### {title}")[1]
    table, block = re.search(r"\|[-|]+\n(.*?)\n\n```\n(.*?)```", chapter, re.DOTALL).groups()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return cells, block.splitlines()


def fleet_of_the_page():
    """Return what the models of the optimizer's example want."""
    variants, models = {}, {}
    for model, priority, demand, name, cost, carries, count in rows("Example of the optimizer")[0]:
        key, there = VariantKey(model, name), int(count)
        limits = (f"gpu-limiter {name.upper()}",)
        one = Offer(key, float(cost), float(carries), there, there, floor=there, limits=limits)
        variants.setdefault(model, []).append(one)
        models[model] = int(priority), float(demand)
    return [
        Want(ModelKey("ns", model), demand, tuple(variants[model]), rank) for model, (rank, demand) in models.items()
    ]


def solved():
    """Return what the models of the example get, without a limit and under every policy."""
    wants = fleet_of_the_page()
    free = re.findall(r"(\d+) GPUs? (\w+)", PAGE.split("### Example of the optimizer")[1].split("|")[0])
    stock = Stock.of(Inventory.of([AcceleratorPool(kind, int(count), 0) for count, kind in free]), ())
    cases = {"unlimited": (UNLIMITED, AllocationPolicy())}
    cases["None"] = stock, AllocationPolicy()
    rules = [SharingRule(policy.value) for policy in BestEffort if policy is not BestEffort.NONE]
    cases |= {rule.value: (stock, AllocationPolicy(rule)) for rule in rules}
    delayed = AllocationPolicy(SharingRule.PRIORITY_EXHAUSTIVE, delayed=True)
    cases["PriorityExhaustive, delayed"] = stock, delayed
    lines = []
    for name, (limit, policy) in cases.items():
        numbers = allocate(wants, limit, policy).numbers
        told = []
        for want in wants:
            counts = [(numbers[offer.key], offer.key.name) for offer in want.offers]
            told.append(f"{want.key.model_id} " + " + ".join(f"{count} {name}" for count, name in counts if count))
        lines.append(f"{name}: {', '.join(told)}")
    return lines


def test_the_example_of_the_optimizer_is_what_the_code_computes():
    """The example is computed without limit and under every policy."""
    assert solved() == rows("Example of the optimizer")[1]


def test_the_numbers_of_the_page_are_those_of_the_code():
    """The page has the thresholds, windows and bounds of the code."""
    for words in (
        f"else {DEFAULT_BATCH}.",
        f"{KV_SHARE * 100:g} % of the KV cache",
        f"less than {BELIEVED_SHARE * 100:g} % of what",
        f"the mean plus {DEVIATIONS:g} standard deviations",
        f"that {MISSED * 100:g} % of the requests exceed",
        f"{ATTAINMENT * 100:g} % of the requests meet them",
        f"aims at {RELAXED:g} times that latency",
        f"serve at most {MISSED_BY_SLOW * 100:g} % of the requests",
        f"cheaper by {100 - WORTH * 100:g} % or more",
        f"k = `sloMultiplier` ({DEFAULT_SLO_MULTIPLIER:g})",
    ):
        assert words in " ".join(PAGE.split()), words

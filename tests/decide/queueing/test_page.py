"""The page about the queueing model agrees with the code: its example is computed, its numbers are compared."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from tests.builders import variant
from tests.decide.queueing.samples import A100, H100, MODEL, PREMIUM, UNTUNED, Analysis, pod
from tests.decide.story import Story
from wva.decide.analyze.queueing_parameters import DEFAULT_BATCH, FIRM_ERROR, FIRM_OBSERVATIONS, STEADY_SHARE
from wva.decide.arbitrate import arbitrate
from wva.decide.queueing.cover import SHRINK_SHARE, Carrier
from wva.decide.queueing.fleet import Fleet, FleetNeed, Gpus, plan
from wva.decide.queueing.service import MAX_BATCH, QUEUE_TO_BATCH
from wva.decide.queueing.system import Options
from wva.model.decision import Reason
from wva.model.optimizers import BestEffort
from wva.model.policy import DEFAULT_SLO_MULTIPLIER, Policy
from wva.model.queueing import OBSERVATION_SECONDS, WINDOW, VariantOpinion
from wva.model.variant import Bounds, ModelKey, VariantKey

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


def rows(title):
    """Return the cells of an example's table, and the lines of the block below it."""
    chapter = PAGE.split(f"### {title}")[1]
    table, block = re.search(r"\|[-|]+\n(.*?)\n\n```\n(.*?)```", chapter, re.DOTALL).groups()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return cells, block.splitlines()


def fleet_of_the_page():
    """Return the models of the optimizer's example, and the types of their GPUs."""
    variants, models = {}, {}
    for model, priority, demand, name, cost, carries, count in rows("Example of the optimizer")[0]:
        key = VariantKey(model, name)
        one = Carrier(key, float(cost), float(carries), int(count), int(count), int(count))
        variants.setdefault(model, []).append(one)
        models[model] = int(priority), float(demand)
    needs = [
        FleetNeed(ModelKey("ns", model), rank, demand, tuple(variants[model]), shrinks=False)
        for model, (rank, demand) in models.items()
    ]
    return needs, {each.key: each.key.name.upper() for own in variants.values() for each in own}


def solved():
    """Return what the models of the example get, without a limit and under every policy."""
    needs, types = fleet_of_the_page()
    free = re.findall(r"(\d+) GPUs? (\w+)", PAGE.split("### Example of the optimizer")[1].split("|")[0])
    gpus = Gpus({kind: int(count) for count, kind in free}, types)
    cases = {"unlimited": Options()} | {policy.value: Options(False, policy) for policy in BestEffort}
    cases["PriorityExhaustive, delayed"] = Options(False, BestEffort.PRIORITY_EXHAUSTIVE, delayed=True)
    lines = []
    for name, options in cases.items():
        told = []
        for need, grant in zip(needs, plan(needs, Fleet(options, gpus)), strict=True):
            replicas = " + ".join(f"{count} {key.name}" for key, count in grant.numbers.items() if count)
            told.append(f"{need.model.model_id} {replicas}")
        lines.append(f"{name}: {', '.join(told)}")
    return lines


def test_the_example_of_the_optimizer_is_what_the_code_computes():
    """Unlimited, and greedy under every policy."""
    assert solved() == rows("Example of the optimizer")[1]


def arbitrated():
    """Return what becomes of the numbers in the table of HYBRID mode."""
    draft = Story().cycle(variant("a"), a=[(0.5, 0.0)])["a"]
    lines = []
    for current, saturation, model in rows("Example of HYBRID mode")[0]:
        before = replace(draft, current=int(current), desired=int(saturation), previous=int(current), steps=())
        wanted = None if model == "-" else int(model)
        opinion = VariantOpinion(before.key, "A100", wanted, "no parameters" if wanted is None else "...")
        found = arbitrate(before, opinion, bounds=Bounds(None, 8), most=5)
        (step,) = found.steps
        limit = f" [{step.limit}]" if step.limit else ""
        lines.append(f"{found.desired} {found.reason.value}: {step.reason.split('; ...')[0].split(';')[0]}{limit}")
    return lines


def test_the_example_of_hybrid_mode_is_what_the_code_computes():
    """One line per row."""
    assert arbitrated() == rows("Example of HYBRID mode")[1]


def test_the_numbers_of_the_page_are_those_of_the_code():
    """Thresholds, windows and bounds."""
    for words in (
        f"{FIRM_OBSERVATIONS} observations or more, explained to within {FIRM_ERROR * 100:g} %",
        f"the last {WINDOW} observations (at most {OBSERVATION_SECONDS / 3600:g} h old)",
        f"less than {STEADY_SHARE * 100:g} % of the traffic",
        f"else {DEFAULT_BATCH}.",
        f"at most {QUEUE_TO_BATCH} N waiting requests",
        f"k = `sloMultiplier` ({DEFAULT_SLO_MULTIPLIER:g})",
        f"at most {SHRINK_SHARE * 100:g} % of the remaining capacity is in use",
        f"batch above {MAX_BATCH}",
    ):
        assert words in " ".join(PAGE.split()), words


def test_the_reasons_of_hybrid_mode_exist():
    """As the table names them."""
    assert f"`{Reason.MODEL_BASED.value}`" in PAGE
    assert f"`{Reason.SAFETY_OVERRIDE.value}`" in PAGE

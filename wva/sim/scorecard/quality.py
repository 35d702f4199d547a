"""From a plan to a scorecard: which runs to make, in which order, and the files that tell of them.

A policy with a target is tuned in hindsight per scenario: every target of its family runs with the first seed, the
best ``FINALISTS`` of them with all seeds, and the best of these is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from wva.model.records import replace
from wva.sim.scorecard.card import (
    FINALISTS,
    REFERENCE,
    SUBJECT,
    Card,
    PolicyFamily,
    ScenarioCard,
    best,
    card,
    limit_of,
)
from wva.sim.scorecard.markdown import FiguresBeside, markdown
from wva.sim.scorecard.recorded import NO_TIMELINE, RecordedRuns, joining
from wva.sim.scorecard.runs import RunJob, RunOutcome, Workshop, outcomes
from wva.sim.scorecard.tables import ScorecardTables, encode, tables
from wva.sim.scorecard.tables_page import tables_page
from wva.sim.scorecard.verdicts import compare, setting, why
from wva.sim.stage.result import RunResult, StageTimeline
from wva.sim.stage.scenario import Scenario

Progress = Callable[[RunOutcome, int], None]
"""Called with each finished run and the number of all runs."""


class RunsFailedError(Exception):
    """Some runs have no result; the first argument is the list of their outcomes."""

    def __init__(self, failed: Sequence[RunOutcome]) -> None:
        """Keep the outcomes."""
        super().__init__(failed)
        self.failed = failed


@dataclass(frozen=True, slots=True)
class SuitePlan:
    """What a scorecard is made of: ``policies`` as they are, ``families`` to be tuned; ``order`` is that of tables.

    ``recorded`` are runs that join where they are comparable.
    """

    title: str
    scenarios: tuple[Scenario, ...]
    policies: tuple[str, ...]
    families: tuple[PolicyFamily, ...]
    seeds: tuple[int, ...]
    order: tuple[str, ...]
    recorded: tuple[RecordedRuns, ...] = ()


def judge(plan: SuitePlan, workshop: Workshop, *, workers: int, progress: Progress) -> Card:
    """Make all runs of a plan and return their scorecard. Raises RunsFailedError after the last run."""
    first = plan.seeds[0]
    members = {member for family in plan.families for member in family.members}
    jobs = [
        RunJob(scenario, policy, seed)
        for scenario in plan.scenarios
        for seed in plan.seeds
        for policy in dict.fromkeys((*plan.policies, *(sorted(members) if seed == first else ())))
    ]
    finals = sum(min(FINALISTS, len(family.members)) for family in plan.families) * (len(plan.seeds) - 1)
    expected = len(jobs) + finals * len(plan.scenarios)
    results = list(_results(jobs, workshop, workers, lambda outcome: progress(outcome, expected)))
    if len(plan.seeds) > 1 and plan.families:
        made = {(job.scenario.name, job.policy, job.seed) for job in jobs}
        wanted = [
            RunJob(scenario, member, seed)
            for scenario in plan.scenarios
            for seed in plan.seeds[1:]
            for member in _finalists(scenario, results, plan, first)
        ]
        jobs = [job for job in wanted if (job.scenario.name, job.policy, job.seed) not in made]
        expected = len(made) + len(jobs)
        results += _results(jobs, workshop, workers, lambda outcome: progress(outcome, expected))
    joined = [run for scenario in plan.scenarios for run in joining(plan.recorded, scenario, results)]
    foreign = {run.policy for run in joined}
    found = card(
        plan.scenarios,
        [*results, *joined],
        title=plan.title,
        families=plan.families,
        order=plan.order,
        timeline_of=lambda scenario, policy: (
            None if policy in foreign else _timeline(workshop, scenario, policy, first)
        ),
    )
    return replace(found, notes=tuple(_notes(plan, joined)))


def _notes(plan: SuitePlan, joined: Sequence[RunResult]) -> Iterator[str]:
    """Yield what there is to know about recorded runs of the plan's scenarios: whose they are, and where they are."""
    names = {scenario.name for scenario in plan.scenarios}
    for recording in plan.recorded:
        known = names & {run.scenario for run in recording.runs}
        places = {run.scenario for run in joined if run.policy in recording.policies}
        if known:
            yield (
                f"{recording.source}: recorded by `{recording.command}` in {len(known)} of these scenarios, and "
                f"shown in the {len(places)} of them where the world and the seeds are the same now and the policy "
                f"does something else, or is gone."
            )


def write(found: Card, folder: Path) -> list[Path]:
    """Write the three files of a scorecard and return where they are."""
    from wva.sim.scorecard.page import html  # noqa: PLC0415 - plotly, which only this needs

    texts = {
        "scorecard.html": html(found),
        "scorecard.md": markdown(tables(found), FiguresBeside("scorecard.html", "scorecard.json")),
        "scorecard.json": msgspec.json.format(msgspec.json.encode(document(found)), indent=1).decode(),
    }
    for name, text in texts.items():
        folder.joinpath(name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def publish(found: ScorecardTables, path: Path) -> list[Path]:
    """Write the Markdown to ``path``, and beside it its tables as a page and as data; return where they are."""
    page, data = (path.with_name(f"{path.stem}-tables.{kind}") for kind in ("html", "json"))
    texts = {path: markdown(found, FiguresBeside(page.name, data.name)), page: tables_page(found), data: encode(found)}
    for each, text in texts.items():
        each.write_text(text, encoding="utf-8")
    return list(texts)


def document(found: Card) -> dict[str, object]:
    """Return the scorecard as JSON has it: all figures of all policies, and of every target that was tried."""
    return {
        "title": found.title,
        "seeds": found.seeds,
        "scenarios": [
            {
                "name": part.scenario.name,
                "title": part.scenario.title,
                "kind": part.scenario.kind,
                "setting": setting(part),
                "best": part.winner,
                "best_without_hindsight": part.unaided,
                "policies": part.cells,
                "targets": part.grid,
                "comparisons": _comparisons(part),
            }
            for part in found.parts
        ],
    }


def _comparisons(part: ScenarioCard) -> list[dict[str, object]]:
    """Return how the subject does against each other policy."""
    subjects = [cell for cell in part.cells if cell.policy == SUBJECT]
    others = [cell for cell in part.cells if cell.policy not in {SUBJECT, REFERENCE}]
    found = [compare(subject, other, part.cutoff) for subject in subjects for other in others]
    return [
        {"against": one.second.policy, "verdict": one.verdict.value, "by": one.by, "why": why(one)} for one in found
    ]


def _results(
    jobs: Sequence[RunJob], workshop: Workshop, workers: int, progress: Callable[[RunOutcome], None]
) -> Iterator[RunResult]:
    """Yield results without their timelines, which stay in their files. Raises RunsFailedError after the last."""
    failed = []
    for outcome in outcomes(jobs, workshop, workers=workers):
        progress(outcome)
        if outcome.result is None:
            failed.append(outcome)
        else:
            yield replace(outcome.result, timeline=NO_TIMELINE)
    if failed:
        raise RunsFailedError(sorted(failed, key=lambda each: (each.scenario, each.policy, each.seed)))


def _finalists(scenario: Scenario, results: Sequence[RunResult], plan: SuitePlan, seed: int) -> list[str]:
    """Return the members of each family that did best with a seed, of those that cost no more than a fixed fleet."""
    own = [result for result in results if result.scenario == scenario.name and result.seed == seed]
    (part,) = card([scenario], own, title="", timeline_of=lambda *_: NO_TIMELINE).parts
    found: list[str] = []
    for family in plan.families:
        members = [cell for cell in part.cells if cell.policy in family.members]
        left = [cell for cell in members if cell.cost_ratio <= limit_of(part.cells)] or members
        for _ in range(min(FINALISTS, len(left))):
            chosen = best(left)
            left.remove(chosen)
            found.append(chosen.policy)
    return list(dict.fromkeys(found))


def _timeline(workshop: Workshop, scenario: Scenario, policy: str, seed: int) -> StageTimeline:
    outcome = workshop.make(RunJob(scenario, policy, seed))
    if outcome.result is None:
        raise RunsFailedError([outcome])
    return outcome.result.timeline

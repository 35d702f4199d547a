"""From a plan to a scorecard: which runs to make, in which order, and the files that report them.

A policy with a target is tuned in hindsight per scenario, in three rounds: a few targets of its family run with the
first seed, then those beside the best of them (``tuning``), and the best ``FINALISTS`` with all seeds. The best of
these is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from wva.model.records import replace
from wva.sim.scorecard.card import (
    FINALISTS,
    REFERENCE,
    SUBJECT,
    Card,
    Cell,
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
from wva.sim.scorecard.tuning import beside, spread
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

    ``recorded`` are runs that join where they are comparable. ``fewer`` has the number of seeds of scenarios that need
    fewer. ``same`` maps a member of a family to the policy that does the same, as its target is that policy's default.
    ``of_roles`` names policies that play only where variants have roles.
    """

    title: str
    scenarios: tuple[Scenario, ...]
    policies: tuple[str, ...]
    families: tuple[PolicyFamily, ...]
    seeds: tuple[int, ...]
    order: tuple[str, ...]
    recorded: tuple[RecordedRuns, ...] = ()
    fewer: Mapping[str, int] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)
    of_roles: frozenset[str] = frozenset()

    def seeds_of(self, scenario: Scenario) -> tuple[int, ...]:
        """Return the seeds of a scenario."""
        return self.seeds[: self.fewer.get(scenario.name, len(self.seeds))]

    def policies_of(self, scenario: Scenario) -> tuple[str, ...]:
        """Return the policies that play a scenario."""
        return tuple(name for name in self.policies if self._plays(name, scenario))

    def families_of(self, scenario: Scenario) -> tuple[PolicyFamily, ...]:
        """Return the families that are tuned in a scenario."""
        return tuple(family for family in self.families if self._plays(family.members[0], scenario))

    def _plays(self, policy: str, scenario: Scenario) -> bool:
        return policy.partition("@")[0] not in self.of_roles or any(setup.role for setup in scenario.variants)

    def played_as(self, policy: str) -> str:
        """Return the name under which a policy is played: no policy is played twice."""
        twin = self.same.get(policy, policy)
        return twin if twin in self.policies else policy


def judge(plan: SuitePlan, workshop: Workshop, *, workers: int, progress: Progress) -> Card:
    """Make all runs of a plan and return their scorecard. Raises RunsFailedError after the last run of a round."""
    runs = _PlanRuns(plan, workshop, workers, progress)
    runs.add(_first_round(plan), later=len(probable_runs(plan)))
    runs.add(_second_round(plan, runs.results), later=len(probable_runs(plan)))
    runs.add(_last_round(plan, runs.results))
    results = runs.results
    joined = [run for scenario in plan.scenarios for run in joining(plan.recorded, scenario, results)]
    foreign = {run.policy for run in joined}
    scorecard = card(
        plan.scenarios,
        [*results, *joined],
        title=plan.title,
        families=plan.families,
        order=plan.order,
        timeline_of=lambda scenario, policy: (
            None if policy in foreign else _timeline(workshop, scenario, plan.played_as(policy), plan.seeds[0])
        ),
    )
    return replace(scorecard, notes=tuple(_notes(plan, joined)))


def probable_runs(plan: SuitePlan) -> list[RunJob]:
    """Return roughly the runs of a plan: which targets run last is known only when others have run."""
    second: list[RunJob] = []
    last: list[RunJob] = []
    for scenario in plan.scenarios:
        for family in plan.families_of(scenario):
            members = beside(family.members, lambda tried: tried[len(tried) // 2])
            second += [RunJob(scenario, member, plan.seeds[0]) for member in members]
            for seed in plan.seeds_of(scenario)[1:]:
                last += [RunJob(scenario, member, seed) for member in family.members[:FINALISTS]]
    return _played(plan, [*_first_round(plan), *second, *last])


def _played(plan: SuitePlan, wanted: Sequence[RunJob]) -> list[RunJob]:
    """Return the runs that are played for the wanted ones, each once."""
    played = {(job.scenario.name, plan.played_as(job.policy), job.seed): job.scenario for job in wanted}
    return [RunJob(scenario, policy, seed) for (_, policy, seed), scenario in played.items()]


def _first_round(plan: SuitePlan) -> list[RunJob]:
    """Return the runs of each policy as it is, and of a few targets of each family with the first seed."""
    jobs = []
    for scenario in plan.scenarios:
        members = sorted({member for family in plan.families_of(scenario) for member in spread(family.members)})
        for seed in plan.seeds_of(scenario):
            names = (*plan.policies_of(scenario), *(members if seed == plan.seeds[0] else ()))
            jobs += [RunJob(scenario, policy, seed) for policy in names]
    return jobs


def _second_round(plan: SuitePlan, results: Sequence[RunResult]) -> list[RunJob]:
    """Return the runs of the targets beside the best ones so far, with the first seed."""
    jobs = []
    for scenario in plan.scenarios:
        cells = _of_first_seed(scenario, results, plan)
        for family in plan.families_of(scenario):
            members = beside(family.members, partial(_best_of, cells))
            jobs += [RunJob(scenario, member, plan.seeds[0]) for member in members]
    return jobs


def _last_round(plan: SuitePlan, results: Sequence[RunResult]) -> list[RunJob]:
    """Return the runs of the best targets of each family with all other seeds."""
    jobs = []
    for scenario in plan.scenarios:
        cells = _of_first_seed(scenario, results, plan)
        families = plan.families_of(scenario)
        finalists = [member for family in families for member in _ranked(family.members, cells, FINALISTS)]
        jobs += [RunJob(scenario, member, seed) for seed in plan.seeds_of(scenario)[1:] for member in finalists]
    return jobs


class _PlanRuns:
    """Results of a plan, round by round. Two policies that do the same are played once."""

    def __init__(self, plan: SuitePlan, workshop: Workshop, workers: int, progress: Progress) -> None:
        self.results: list[RunResult] = []
        """Without their timelines, which stay in their files."""
        self._plan, self._workshop, self._workers, self._progress = plan, workshop, workers, progress
        self._by_run: dict[tuple[str, str, int], RunResult] = {}
        self._listed: set[tuple[str, str, int]] = set()

    def add(self, wanted: Sequence[RunJob], *, later: int = 0) -> None:
        """Make those of some runs that are missing. Raises RunsFailedError after the last.

        In all rounds there may be ``later`` runs.
        """
        jobs = [
            job for job in _played(self._plan, wanted) if (job.scenario.name, job.policy, job.seed) not in self._by_run
        ]
        expected = max(later, len(self._by_run) + len(jobs))
        for result in _results(jobs, self._workshop, self._workers, lambda outcome: self._progress(outcome, expected)):
            self._by_run[result.scenario, result.policy, result.seed] = result
        for job in wanted:
            key = (job.scenario.name, job.policy, job.seed)
            if key not in self._listed:
                self._listed.add(key)
                result = self._by_run[job.scenario.name, self._plan.played_as(job.policy), job.seed]
                self.results.append(replace(result, policy=job.policy))


def _notes(plan: SuitePlan, joined: Sequence[RunResult]) -> Iterator[str]:
    """Yield notes on the recorded runs of the plan's scenarios: what made them, and in how many they are shown."""
    names = {scenario.name for scenario in plan.scenarios}
    for recording in plan.recorded:
        known = names & {run.scenario for run in recording.runs}
        shown_in = {run.scenario for run in joined if run.policy in recording.policies}
        if known:
            yield (
                f"{recording.source}: recorded by `{recording.command}` in {len(known)} of these scenarios, and "
                f"shown in the {len(shown_in)} of them where the world and the seeds are the same now and the policy "
                f"does something else, or is gone."
            )


def write(scorecard: Card, folder: Path) -> list[Path]:
    """Write the three files of a scorecard and return where they are."""
    from wva.sim.scorecard.page import html  # noqa: PLC0415 - plotly, which only this needs

    texts = {
        "scorecard.html": html(scorecard),
        "scorecard.md": markdown(tables(scorecard), FiguresBeside("scorecard.html", "scorecard.json")),
        "scorecard.json": msgspec.json.format(msgspec.json.encode(document(scorecard)), indent=1).decode(),
    }
    for name, text in texts.items():
        folder.joinpath(name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def publish(scorecard_tables: ScorecardTables, path: Path) -> list[Path]:
    """Write the Markdown to ``path``, and beside it its tables as a page and as data; return where they are."""
    page, data = (path.with_name(f"{path.stem}-tables.{kind}") for kind in ("html", "json"))
    texts = {
        path: markdown(scorecard_tables, FiguresBeside(page.name, data.name)),
        page: tables_page(scorecard_tables),
        data: encode(scorecard_tables),
    }
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
    return list(texts)


def document(scorecard: Card) -> dict[str, object]:
    """Return the scorecard as JSON has it: all figures of all policies, and of every target that was tried."""
    return {
        "title": scorecard.title,
        "seeds": scorecard.seeds,
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
            for part in scorecard.parts
        ],
    }


def _comparisons(part: ScenarioCard) -> list[dict[str, object]]:
    """Return how the subject does against each other policy."""
    subjects = [cell for cell in part.cells if cell.policy == SUBJECT]
    others = [cell for cell in part.cells if cell.policy not in {SUBJECT, REFERENCE}]
    comparisons = [compare(subject, other, part.cutoff) for subject in subjects for other in others]
    return [
        {
            "against": comparison.second.policy,
            "verdict": comparison.verdict.value,
            "by": comparison.by,
            "why": why(comparison),
        }
        for comparison in comparisons
    ]


def _results(
    jobs: Sequence[RunJob], workshop: Workshop, workers: int, progress: Callable[[RunOutcome], None]
) -> Iterator[RunResult]:
    """Yield results without their timelines, which stay in their files. Raises RunsFailedError after the last run."""
    failed = []
    for outcome in outcomes(jobs, workshop, workers=workers):
        progress(outcome)
        if outcome.result is None:
            failed.append(outcome)
        else:
            yield replace(outcome.result, timeline=NO_TIMELINE)
    if failed:
        raise RunsFailedError(sorted(failed, key=lambda failure: (failure.scenario, failure.policy, failure.seed)))


def _of_first_seed(scenario: Scenario, results: Sequence[RunResult], plan: SuitePlan) -> tuple[Cell, ...]:
    """Return a cell for each policy of a scenario, of the first seed alone."""
    own = [result for result in results if result.scenario == scenario.name and result.seed == plan.seeds[0]]
    (part,) = card([scenario], own, title="", timeline_of=lambda *_: NO_TIMELINE).parts
    return part.cells


def _best_of(cells: Sequence[Cell], members: Sequence[str]) -> str:
    return _ranked(members, cells, 1)[0]


def _ranked(members: Sequence[str], cells: Sequence[Cell], count: int) -> list[str]:
    """Return the ``count`` best members of a family, of those that cost no more than a fixed fleet."""
    limit, ranked = limit_of(cells), []
    own = [cell for cell in cells if cell.policy in members]
    left = [cell for cell in own if cell.cost_ratio <= limit] or own
    for _ in range(min(count, len(left))):
        chosen = best(left)
        left.remove(chosen)
        ranked.append(chosen.policy)
    return ranked


def _timeline(workshop: Workshop, scenario: Scenario, policy: str, seed: int) -> StageTimeline:
    outcome = workshop.make(RunJob(scenario, policy, seed))
    if outcome.result is None:
        raise RunsFailedError([outcome])
    return outcome.result.timeline

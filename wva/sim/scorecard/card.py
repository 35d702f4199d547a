"""The summary of a scorecard's runs: figures over seeds, tuned members chosen, and the winner of each scenario.

One rule says which of several policies is best. The goal is that ``GOAL`` of the requests are served within the
objectives: among the policies that reach it, the cheapest is best. If none does, the best is the cheapest of those
within ``CLOSE`` of the highest share that any reaches. Policies that cost more than a fleet fixed at the peak do not
count, as long as there are others. A policy that is tuned in hindsight is tuned by the same rule: any other rule would
make it a weaker opponent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from math import inf
from typing import Final

from wva.model.records import replace
from wva.sim.scorecard.statistics import CHANCE, Estimate, estimate, estimate_of_known, highest_certain
from wva.sim.stage.late import CAUSES
from wva.sim.stage.result import Figures, RunResult, StageTimeline
from wva.sim.stage.scenario import Scenario

GOAL: Final = 0.99
"""The share of requests that shall be served within the objectives."""
CLOSE: Final = 0.005
"""Attainments that differ by less are taken as equal."""
FINALISTS: Final = 2
"""The number of targets of a family that run with all seeds."""
TUNED: Final = "-tuned"
"""The end of the name of a policy that is tuned in hindsight."""
FIXED: Final = "static-peak"
"""The fleet that carries the peak and never changes."""
SUBJECT: Final = "wva"
"""The policy that the scorecard is about: WVA with its default policy."""
REFERENCE: Final = "clairvoyant"
"""The policy that knows the traffic. It takes no part in comparisons; others are measured by it."""

_DIRECT: Final = tuple(
    figure.name
    for figure in fields(Figures)
    if figure.name not in {"replica_hours", "late_by_cause", "late_tokens_by_cause", "seconds_to_capacity"}
)


@dataclass(frozen=True, slots=True)
class PolicyFamily:
    """Policies that differ in one target, tuned in hindsight; ``members`` are names of policies."""

    name: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy in one scenario, over all seeds.

    Attributes:
        policy: the name in tables; of a family, the family's.
        member: the name of the policy that ran.
        figures: each field of ``Figures`` that is a number, and ``failed_share``, ``cost_ratio`` (to the ideal cost),
            ``peak_ratio`` (most asked for to most needed), ``reference_ratio`` (to the clairvoyant's cost),
            ``seconds_to_capacity`` (mean over steps); a field that no seed has a value for is missing.
        late_by_cause: share of all requests that failed or whose first token was late, by cause.
        late_tokens_by_cause: share of all requests whose time between tokens alone was late, by cause.
        hours: replica-hours by variant.
        attainments: one per seed, in order of seeds: to compare policies seed by seed.
        cost_ratios: same.

    """

    policy: str
    member: str
    figures: dict[str, Estimate]
    late_by_cause: dict[str, float]
    late_tokens_by_cause: dict[str, float]
    hours: dict[str, float]
    attainments: tuple[float, ...]
    cost_ratios: tuple[float, ...]

    @property
    def attainment(self) -> float:
        """Mean share of requests within all objectives."""
        return self.figures["attainment"].mean

    @property
    def cost_ratio(self) -> float:
        """Mean cost relative to the ideal."""
        return self.figures["cost_ratio"].mean

    def gap_in_time(self, other: Cell) -> Estimate:
        """Return how much higher the share of requests in time is than another's, seed by seed."""
        return estimate([own - theirs for own, theirs in zip(self.attainments, other.attainments, strict=True)])

    def gap_in_cost(self, other: Cell) -> Estimate:
        """Return how much less it costs than another, as a share of the ideal cost, seed by seed."""
        return estimate([theirs - own for own, theirs in zip(self.cost_ratios, other.cost_ratios, strict=True)])

    @property
    def missed_by_cause(self) -> dict[str, float]:
        """Share of all requests that were not in time, by cause, whether their first token or later ones were late."""
        return {cause: self.late_by_cause[cause] + self.late_tokens_by_cause[cause] for cause in CAUSES}


@dataclass(frozen=True, slots=True)
class ScenarioCard:
    """One scenario of the scorecard. ``cells`` are what is shown; ``grid`` are all members of families.

    ``winner`` is the best policy, ``unaided`` the best of those that know nothing of the traffic in advance; None when
    no such policy ran.
    """

    scenario: Scenario
    cells: tuple[Cell, ...]
    grid: tuple[Cell, ...]
    winner: str
    unaided: str | None
    timelines: Mapping[str, StageTimeline]
    """Of the first seed, by the policy's name in tables; recorded runs have none."""
    cutoff: float = CHANCE
    """The highest p-value of a difference that counts as certain. The more the card compares, the lower it is."""

    def cell(self, policy: str) -> Cell | None:
        """Return the cell of a policy; None when it did not run."""
        return next((cell for cell in self.cells if cell.policy == policy), None)


@dataclass(frozen=True, slots=True)
class Card:
    """The whole scorecard. ``notes`` are paragraphs that its pages begin with.

    ``tests`` is the number of differences for which ``cutoff`` was set: those of the subject to each other policy, in
    share and in cost.
    """

    title: str
    seeds: tuple[int, ...]
    parts: tuple[ScenarioCard, ...]
    notes: tuple[str, ...] = ()
    tests: int = 0


def card(
    scenarios: Sequence[Scenario],
    results: Iterable[RunResult],
    *,
    title: str,
    families: Sequence[PolicyFamily] = (),
    order: Sequence[str] = (),
    timeline_of: Callable[[Scenario, str], StageTimeline | None] | None = None,
) -> Card:
    """Return the scorecard of some results.

    ``order`` is that of policies in tables; others follow by name. ``timeline_of`` returns the timeline of a policy in
    a scenario with the first seed, None where there is none; without it those of the results are taken.

    Raises ValueError when a policy lacks a seed that another has in the same scenario. Members of a family may lack
    seeds: they are in the grid, but are not chosen.
    """
    by_scenario: dict[str, list[RunResult]] = defaultdict(list)
    for result in results:
        by_scenario[result.scenario].append(result)
    ranks = {name: rank for rank, name in enumerate(order)}
    parts = [_part(scenario, by_scenario[scenario.name], families, ranks, timeline_of) for scenario in scenarios]
    seeds = sorted({result.seed for scenario_results in by_scenario.values() for result in scenario_results})
    tested = [value for part in parts for value in _p_values(part)]
    cutoff = highest_certain(tested)
    return Card(title, tuple(seeds), tuple(replace(part, cutoff=cutoff) for part in parts), tests=len(tested))


def _p_values(part: ScenarioCard) -> Iterator[float]:
    """Yield the p-values of the subject's differences to each other policy; none with a single seed."""
    subject = part.cell(SUBJECT)
    for other in part.cells:
        if subject is not None and other.policy not in {SUBJECT, REFERENCE}:
            for gap in (other.gap_in_time(subject), other.gap_in_cost(subject)):
                if gap.p_value is not None:
                    yield gap.p_value


def in_hindsight(policy: str) -> bool:
    """Return whether a policy knows something of the traffic that it is judged on."""
    return policy.endswith(TUNED) or policy in {FIXED, REFERENCE}


def limit_of(cells: Iterable[Cell]) -> float:
    """Return the relative cost of the fixed fleet among some cells; infinite without it."""
    return next((cell.cost_ratio for cell in cells if cell.policy == FIXED), inf)


def best(cells: Sequence[Cell], *, limit: float = inf) -> Cell:
    """Return the best cell: the cheapest of those that reach the goal, or come close to the highest attainment.

    Cells whose relative cost is above ``limit`` do not count as long as there are others.
    """
    cells = [cell for cell in cells if cell.cost_ratio <= limit] or cells
    bar = min(GOAL, max(cell.attainment for cell in cells) - CLOSE)
    return min((cell for cell in cells if cell.attainment >= bar), key=lambda cell: (cell.cost_ratio, cell.policy))


def _part(
    scenario: Scenario,
    results: list[RunResult],
    families: Sequence[PolicyFamily],
    ranks: Mapping[str, int],
    timeline_of: Callable[[Scenario, str], StageTimeline | None] | None,
) -> ScenarioCard:
    results = sorted(results, key=lambda result: (result.policy, result.seed))
    reference = {result.seed: result.figures.cost for result in results if result.policy == REFERENCE}
    runs = {
        policy: list(policy_results) for policy, policy_results in groupby(results, key=lambda result: result.policy)
    }
    all_seeds = sorted({result.seed for result in results})
    complete = {
        policy for policy, policy_results in runs.items() if [result.seed for result in policy_results] == all_seeds
    }
    if not runs.keys() - complete <= {member for family in families for member in family.members}:
        raise ValueError(f"{scenario.name}: not every policy has run with the same seeds")
    cells = {policy: _cell(policy_results, reference) for policy, policy_results in runs.items()}
    limit = limit_of(cells.values())
    grid: list[Cell] = []
    for family in families:
        members = [cells.pop(member) for member in family.members if member in cells]
        grid += members
        candidates = [member for member in members if member.policy in complete]
        if candidates:
            cells[family.name] = replace(best(candidates, limit=limit), policy=family.name)
    shown = sorted(cells.values(), key=lambda cell: (ranks.get(cell.policy, len(ranks)), cell.policy))
    rated = [cell for cell in shown if cell.policy != REFERENCE]
    timelines = {
        cell.policy: runs[cell.member][0].timeline if timeline_of is None else timeline_of(scenario, cell.member)
        for cell in shown
    }
    unaided = [cell for cell in rated if not in_hindsight(cell.policy)]
    return ScenarioCard(
        scenario,
        tuple(shown),
        tuple(grid),
        winner=best(rated or shown, limit=limit).policy,
        unaided=best(unaided).policy if unaided else None,
        timelines={policy: timeline for policy, timeline in timelines.items() if timeline is not None},
    )


def _cell(results: Sequence[RunResult], reference: Mapping[int, float]) -> Cell:
    runs = [result.figures for result in results]
    figures: dict[str, Estimate | None] = {
        name: estimate_of_known([getattr(run, name) for run in runs]) for name in _DIRECT
    }
    ratios = tuple(_ratio(run.cost, run.ideal_cost) for run in runs)
    figures["failed_share"] = estimate([_ratio(run.timed_out + run.refused + run.broken, run.requests) for run in runs])
    figures["cost_ratio"] = estimate(ratios)
    figures["peak_ratio"] = estimate_of_known(
        [run.most_asked / run.most_needed if run.most_needed else None for run in runs]
    )
    if reference:
        figures["reference_ratio"] = estimate_of_known(
            [_ratio(result.figures.cost, reference[result.seed]) for result in results if result.seed in reference]
        )
    waits = [run.seconds_to_capacity for run in runs]
    figures["seconds_to_capacity"] = estimate_of_known([sum(wait) / len(wait) if wait else None for wait in waits])
    requests = sum(run.requests for run in runs)
    hours = {name for run in runs for name in run.replica_hours}
    policy = results[0].policy
    return Cell(
        policy=policy,
        member=policy,
        figures={name: value for name, value in figures.items() if value is not None},
        late_by_cause=_shares([run.late_by_cause for run in runs], requests),
        late_tokens_by_cause=_shares([run.late_tokens_by_cause for run in runs], requests),
        hours={name: sum(run.replica_hours.get(name, 0.0) for run in runs) / len(runs) for name in sorted(hours)},
        attainments=tuple(run.attainment for run in runs),
        cost_ratios=ratios,
    )


def _shares(counts: Sequence[Mapping[str, int]], requests: int) -> dict[str, float]:
    """Return the share of each cause in all requests, from the counts of each seed."""
    return {cause: _ratio(sum(by_cause.get(cause, 0) for by_cause in counts), requests) for cause in CAUSES}


def _ratio(part: float, whole: float) -> float:
    """Return a ratio; 0 of nothing is 0. Raises ZeroDivisionError if ``whole`` alone is 0: that has no measure."""
    return 0.0 if part == 0 else part / whole

"""The tables of a scorecard, every figure as it is shown: its Markdown and its page of tables are made from them.

``scorecard.json`` has all figures of all runs. These tables are what people read of them, small enough to lie beside
the documentation. A page that is made from them again has the same figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from wva.model.records import replace
from wva.sim.scorecard import earlier, shown
from wva.sim.scorecard.card import GOAL, REFERENCE, SUBJECT, Card, Cell, ScenarioCard, best, in_hindsight, limit_of
from wva.sim.scorecard.verdicts import (
    PairVerdict,
    PolicyComparison,
    compare,
    comparisons,
    in_short,
    policies,
    setting,
    why,
)
from wva.sim.stage.late import CAUSES

HEADINGS: Final = (*(column.heading for column in shown.COLUMNS), "late by cause", "tokens late by cause")
"""The headings of the values of a row, in order."""
_SMALLEST: Final = 0.0005
"""The smallest share of a cause that is shown: 0.1% when rounded."""


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy in one scenario: ``name`` has its tuned target, ``values`` are in the order of ``HEADINGS``.

    ``in_time`` (share) and ``cost`` (ratio to the ideal) are the first two values as numbers, rounded.
    """

    policy: str
    name: str
    in_time: float
    cost: float
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DecidedPair:
    """A policy, named as in its row, that the subject wins against or loses to, and by what: attainment or cost."""

    name: str
    by: str


@dataclass(frozen=True, slots=True)
class DecidedPairs:
    """The policies of one verdict in a scenario, and why it is so for the best of them without hindsight."""

    against: tuple[DecidedPair, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class ScenarioTable:
    """One scenario. ``best`` and ``with_hindsight`` are names of policies, None where none ran.

    ``verdict`` is how the subject does against ``best``, and by what; ``goal`` whether ``best`` reaches the goal.
    ``bound`` is the share in time that is possible without seeing the future or keeping spare replicas. ``seeds`` is
    the number of seeds that it ran with, 0 where that was not recorded: then it is that of the whole scorecard.
    """

    name: str
    title: str
    setting: str
    best: str | None
    with_hindsight: str | None
    verdict: str
    goal: bool
    loses: DecidedPairs
    wins: DecidedPairs
    rows: tuple[PolicyRow, ...]
    bound: str = shown.NOT_RECORDED
    seeds: int = 0

    def row(self, policy: str | None) -> PolicyRow | None:
        """Return the row of a policy; None when it did not run."""
        return next((row for row in self.rows if row.policy == policy), None)


@dataclass(frozen=True, slots=True)
class VerdictCount:
    """In how many scenarios the subject wins against a policy, is level with it, is uncertain, or loses to it."""

    against: str
    wins: int
    level: int
    uncertain: int
    loses: int


@dataclass(frozen=True, slots=True)
class ScorecardTables:
    """All tables of a scorecard. ``in_short`` are questions with answers; ``headings`` are those of rows' values.

    ``seed_numbers`` are the seeds; ``tests`` is the number of differences that were corrected for when one was called
    certain. Tables of an earlier version may lack both: then there is no seed, and ``tests`` is 0.
    """

    title: str
    seeds: int
    notes: tuple[str, ...]
    in_short: tuple[tuple[str, str], ...]
    counts: tuple[VerdictCount, ...]
    headings: tuple[str, ...]
    scenarios: tuple[ScenarioTable, ...]
    earlier: tuple[tuple[str, ...], ...]
    seed_numbers: tuple[int, ...] = ()
    tests: int = 0

    @property
    def seed_words(self) -> str:
        """How many seeds each scenario has, in words."""
        counts = sorted({part.seeds or self.seeds for part in self.scenarios})
        return "1 seed" if counts == [1] else f"{' or '.join(map(str, counts))} seeds"

    @property
    def policies(self) -> list[str]:
        """All policies in the order of tables."""
        return list(dict.fromkeys(row.policy for part in self.scenarios for row in part.rows))


_decoder: Final = msgspec.json.Decoder(ScorecardTables)


def encode(scorecard_tables: ScorecardTables) -> str:
    """Return the tables as JSON."""
    return msgspec.json.format(msgspec.json.encode(scorecard_tables), indent=1).decode() + "\n"


def decode(text: str) -> ScorecardTables:
    """Return the tables that ``encode`` wrote, with the present columns. Raises msgspec.DecodeError.

    Tables of an earlier version may lack a column: then each value in it says that it was not recorded.
    """
    stored = _decoder.decode(text)
    indices = {heading: index for index, heading in enumerate(stored.headings)}

    def present(row: PolicyRow) -> PolicyRow:
        values = (row.values[indices[heading]] if heading in indices else shown.NOT_RECORDED for heading in HEADINGS)
        return replace(row, values=tuple(values))

    scenarios = (replace(part, rows=tuple(map(present, part.rows))) for part in stored.scenarios)
    return replace(stored, headings=HEADINGS, scenarios=tuple(scenarios))


def tables(card: Card) -> ScorecardTables:
    """Return the tables of a scorecard."""
    return ScorecardTables(
        title=card.title,
        seeds=len(card.seeds),
        notes=card.notes,
        in_short=tuple(in_short(card)),
        counts=tuple(_counts(card)),
        headings=HEADINGS,
        scenarios=tuple(_scenario(part) for part in card.parts),
        earlier=tuple(earlier.rows(card)),
        seed_numbers=card.seeds,
        tests=card.tests,
    )


def _counts(card: Card) -> Iterator[VerdictCount]:
    for rival in policies(card):
        verdicts = (
            [] if rival in {SUBJECT, REFERENCE} else [comparison.verdict for _, comparison in comparisons(card, rival)]
        )
        if verdicts:
            yield VerdictCount(rival, **{verdict.value: verdicts.count(verdict) for verdict in PairVerdict})


def _scenario(part: ScenarioCard) -> ScenarioTable:
    subject, unaided = part.cell(SUBJECT), part.cell(part.unaided or "")
    others = [cell for cell in part.cells if cell.policy not in {SUBJECT, REFERENCE}]
    compared = [] if subject is None else [compare(subject, other, part.cutoff) for other in others]
    return ScenarioTable(
        name=part.scenario.name,
        title=part.scenario.title,
        setting=setting(part),
        best=part.unaided,
        with_hindsight=part.winner,
        verdict="" if subject is None or unaided is None else _verdict(compare(subject, unaided, part.cutoff)),
        goal=unaided is not None and unaided.attainment >= GOAL,
        loses=_decided(part, compared, PairVerdict.LOSES),
        wins=_decided(part, compared, PairVerdict.WINS),
        rows=tuple(_row(cell) for cell in part.cells),
        bound=_bound(part),
        seeds=len(part.cells[0].attainments),
    )


def _bound(part: ScenarioCard) -> str:
    bound = part.cells[0].figures.get("causal_bound")
    return shown.NONE if bound is None else shown.share(bound.mean)


def _verdict(comparison: PolicyComparison) -> str:
    if comparison.first is comparison.second:
        return "is it"
    return comparison.verdict.value + (f" by {comparison.by}" if comparison.by else "")


def _decided(part: ScenarioCard, compared: list[PolicyComparison], verdict: PairVerdict) -> DecidedPairs:
    chosen = {comparison.second.policy: comparison for comparison in compared if comparison.verdict is verdict}
    if not chosen:
        return DecidedPairs()
    cells = [comparison.second for comparison in chosen.values()]
    unaided = [cell for cell in cells if not in_hindsight(cell.policy)]
    strongest = chosen[(best(unaided) if unaided else best(cells, limit=limit_of(part.cells))).policy]
    return DecidedPairs(
        tuple(
            DecidedPair(shown.name(comparison.second), comparison.by)
            for comparison in chosen.values()
            if comparison.by is not None
        ),
        f"The best of them is {strongest.second.policy}: {why(strongest)}.",
    )


def _row(cell: Cell) -> PolicyRow:
    return PolicyRow(
        policy=cell.policy,
        name=shown.name(cell),
        in_time=round(cell.attainment, 4),
        cost=round(cell.cost_ratio, 2),
        values=(
            *(shown.figure(cell, column) for column in shown.COLUMNS),
            _causes(cell.late_by_cause),
            _causes(cell.late_tokens_by_cause),
        ),
    )


def _causes(shares: Mapping[str, float]) -> str:
    causes = [(shares[cause], cause) for cause in CAUSES if shares[cause] >= _SMALLEST]
    return ", ".join(f"{cause} {share:.1%}" for share, cause in sorted(causes, reverse=True)) or shown.NONE

"""Verdicts: where one policy wins and loses against another, and why.

Two policies are compared seed by seed on the same traffic. A difference counts when it is larger than the tolerance
and stands out among all differences that the card tests: with hundreds of comparisons some look certain by chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import isfinite
from typing import Final

from wva.sim.scorecard.card import CLOSE, GOAL, REFERENCE, SUBJECT, Card, Cell, ScenarioCard, in_hindsight
from wva.sim.scorecard.shown import CAUSES, seconds
from wva.sim.scorecard.statistics import CHANCE, Estimate

COST_TOLERANCE: Final = 0.01
"""Costs that differ by a smaller share of the ideal cost are taken as equal."""

_MUCH_DEARER: Final = 1.2
"""From this ratio of costs on, the explanation names the price of a better attainment."""

_NAMED: Final = 4
"""The most policies that a sentence of the summary names."""


class PairVerdict(Enum):
    """How the first of two policies does against the second."""

    WINS = "wins"
    LEVEL = "level"
    UNCERTAIN = "uncertain"
    """There is a difference; with other seeds it might be the other way round."""
    LOSES = "loses"


_DECIDED: Final = (PairVerdict.WINS, PairVerdict.LOSES)


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """One policy against another in one scenario. Attainment or cost decides, and ``by`` names it, or is None."""

    first: Cell
    second: Cell
    verdict: PairVerdict
    by: str | None


def policies(card: Card) -> list[str]:
    """Return all policies in the order in which the tables show them."""
    return list(dict.fromkeys(cell.policy for part in card.parts for cell in part.cells))


def setting(part: ScenarioCard) -> str:
    """Return a sentence about the scenario."""
    scenario = part.scenario
    variants = ", ".join(
        f"{variant.name} at {variant.price:g} per hour (Ready after about {variant.start_up.median_seconds:g} s)"
        for variant in scenario.variants
    )
    objectives, gateway = scenario.objectives, scenario.gateway
    users = "Users wait for the first token without end"
    if isfinite(gateway.patience_seconds):
        users = f"Users wait {gateway.patience_seconds:g} s for the first token"
    if gateway.attempts > 1:
        users += f" and try {gateway.attempts} times"
    return (
        f"Variants: {variants}. Objectives: first token within {seconds(objectives.ttft_seconds)}, "
        f"{seconds(objectives.itl_seconds)} between tokens. {users}."
    )


def in_short(card: Card) -> Iterator[tuple[str, str]]:
    """Yield the questions and answers of the summary. Without a rival there are none."""
    pairs = [
        (part, compare(subject, best, part.cutoff))
        for part in card.parts
        if (subject := part.cell(SUBJECT)) is not None and (best := part.cell(part.unaided or "")) is not None
    ]
    rivals = [policy for policy in policies(card) if policy not in {SUBJECT, REFERENCE}]
    if not pairs or not rivals:
        return
    yield (
        "Who is best without knowing the traffic",
        f"{_often(Counter(comparison.second.policy for _, comparison in pairs))}.",
    )
    against_best = [comparison for _, comparison in pairs]
    is_best = sum(comparison.first is comparison.second for comparison in against_best)
    standing = Counter(comparison.verdict for comparison in against_best if comparison.first is not comparison.second)
    uncertain = f"; in {unsure} it is uncertain" if (unsure := standing[PairVerdict.UNCERTAIN]) else ""
    ahead = f"; in {wins} it costs less with nearly the same share" if (wins := standing[PairVerdict.WINS]) else ""
    stands = (
        f"it is the best in {is_best} of {_scenarios(len(pairs))}, "
        f"level with the best in {standing[PairVerdict.LEVEL]}, "
        f"and loses to the best in {standing[PairVerdict.LOSES]}{uncertain}{ahead}. "
        f"It has {GOAL:.0%} of the requests in time in "
        f"{_reaching(part.cell(SUBJECT) for part, _ in pairs)} of them, the best in "
        f"{_reaching(comparison.second for comparison in against_best)}, and the clairvoyant in "
        f"{_reaching(part.cell(REFERENCE) for part, _ in pairs)}."
    )
    yield f"Where {SUBJECT} stands", stands
    for verdict, question in ((PairVerdict.LOSES, "loses to"), (PairVerdict.WINS, "wins against")):
        counts = {
            rival: sum(comparison.verdict is verdict for _, comparison in comparisons(card, rival))
            for rival in rivals
            if not in_hindsight(rival)
        }
        most = [(rival, count) for rival, count in counts.items() if count]
        if most:
            yield f"Whom {SUBJECT} {question} most often", f"{_counted(most, _NAMED)}."
    if lost := [comparison for comparison in against_best if comparison.verdict is PairVerdict.LOSES]:
        yield f"Why {SUBJECT} loses to the best", _reasons(lost)


def _reasons(lost: Sequence[PolicyComparison]) -> str:
    """Return the most frequent causes of differences, with their meaning."""
    late = [comparison for comparison in lost if comparison.by == "attainment"]
    causes = Counter(worst[0] for comparison in late if (worst := _worst(comparison.second, comparison.first)))
    ordered = [(cause, count) for cause, count in causes.most_common() if count > 1 or len(causes) == 1]
    sentences = []
    if ordered:
        due = "; ".join(f"*{cause}* ({count}): {CAUSES[cause]}" for cause, count in ordered)
        rare = f"; in {rest} another cause" if (rest := len(late) - sum(count for _, count in ordered)) else ""
        sentences.append(f"it has fewer requests in time, and most of the difference is late because of {due}{rare}.")
    if dearer := sum(comparison.second.cost_ratio > _MUCH_DEARER * comparison.first.cost_ratio for comparison in late):
        sentences.append(f"In {dearer} of {len(late)} the best costs over {_MUCH_DEARER:g} times as much as {SUBJECT}.")
    if dear := len(lost) - len(late):
        sentences.append(f"In {_scenarios(dear)} its share in time is as good, and it costs more.")
    return " ".join(sentences)


def _reaching(cells: Iterable[Cell | None]) -> int:
    return sum(cell is not None and cell.attainment >= GOAL for cell in cells)


def _scenarios(count: int) -> str:
    return "1 scenario" if count == 1 else f"{count} scenarios"


def _often(counts: Counter[str]) -> str:
    """Return names with their number of scenarios; of more than four names with a single one, how many they are."""
    once = sum(count == 1 for count in counts.values())
    if once <= _NAMED or once == len(counts):
        return _counted(counts.items())
    return f"{_counted(pair for pair in counts.items() if pair[1] > 1)}, and {once} others in one each"


def _counted(pairs: Iterable[tuple[str, int]], most: int | None = None) -> str:
    """Return names with their number of scenarios, the highest number first."""
    ordered = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:most]
    return ", ".join(f"`{name}` ({count})" for name, count in ordered)


def compare(first: Cell, second: Cell, cutoff: float = CHANCE) -> PolicyComparison:
    """Compare two policies: first by attainment, as long as the goal is in question; then by cost.

    ``cutoff`` is the highest p-value of a difference that counts. A policy that is cheaper and may well be late more
    often does not win by its cost: that is uncertain.
    """
    by_share = PairVerdict.LEVEL
    if min(first.attainment, second.attainment) < GOAL:
        by_share = _difference(first.gap_in_time(second), CLOSE, cutoff)
        if by_share in _DECIDED:
            return PolicyComparison(first, second, by_share, "attainment")
    by_cost = _difference(first.gap_in_cost(second), COST_TOLERANCE, cutoff)
    cheaper, dearer = (first, second) if by_cost is PairVerdict.WINS else (second, first)
    later = cheaper.attainment < GOAL and cheaper.attainment < dearer.attainment - CLOSE
    if by_cost in _DECIDED and not later:
        return PolicyComparison(first, second, by_cost, "cost")
    level = by_share is by_cost is PairVerdict.LEVEL
    return PolicyComparison(first, second, PairVerdict.LEVEL if level else PairVerdict.UNCERTAIN, None)


def comparisons(card: Card, second: str, first: str = SUBJECT) -> list[tuple[ScenarioCard, PolicyComparison]]:
    """Return the comparisons of two policies in all scenarios that both ran in."""
    pairs = [(part, part.cell(first), part.cell(second)) for part in card.parts]
    return [
        (part, compare(first_cell, second_cell, part.cutoff))
        for part, first_cell, second_cell in pairs
        if first_cell is not None and second_cell is not None
    ]


def why(comparison: PolicyComparison) -> str:
    """Return the reason of the difference in words, from the records of the runs."""
    winner, loser = comparison.first, comparison.second
    if comparison.verdict is PairVerdict.LOSES:
        winner, loser = loser, winner
    if comparison.by == "attainment":
        return _why_late(winner, loser)
    if comparison.by == "cost":
        return _why_dear(winner, loser)
    return "no difference" if comparison.verdict is PairVerdict.LEVEL else "no difference beyond noise"


def _difference(gap: Estimate, tolerance: float, cutoff: float) -> PairVerdict:
    """Return whether a gap counts, and in whose favor. A single seed has no p-value: it is taken at its word."""
    if abs(gap.mean) <= tolerance:
        return PairVerdict.LEVEL
    if gap.p_value is not None and gap.p_value > cutoff:
        return PairVerdict.UNCERTAIN
    return PairVerdict.WINS if gap.mean > 0 else PairVerdict.LOSES


def _worst(winner: Cell, loser: Cell) -> list[str]:
    """Return the causes by which the loser has more late requests than the winner, the largest difference first."""
    less = winner.missed_by_cause
    more = {cause: share - less[cause] for cause, share in loser.missed_by_cause.items()}
    return sorted((cause for cause in more if more[cause] > 0), key=lambda cause: -more[cause])


def _why_late(winner: Cell, loser: Cell) -> str:
    """Return the causes that make most of the difference in late requests."""
    worst = _worst(winner, loser)[:2]
    if not worst:
        return f"{loser.policy} is late more often, for causes that were not recorded"
    causes = " and ".join(
        f"{cause} ({loser.missed_by_cause[cause]:.1%} of all requests, "
        f"{winner.policy} {winner.missed_by_cause[cause]:.1%})"
        for cause in worst
    )
    text = f"{loser.policy} is late more often because of {causes}"
    if winner.cost_ratio > _MUCH_DEARER * loser.cost_ratio:
        text += f"; {winner.policy} costs {winner.cost_ratio / loser.cost_ratio:.1f} times as much"
    return text


def _why_dear(winner: Cell, loser: Cell) -> str:
    """Return in words why the dearer fleet costs more: replicas, variants and reversals."""
    loser_replicas, winner_replicas = _mean(loser, "mean_replicas"), _mean(winner, "mean_replicas")
    parts = [f"{loser.policy} has {loser_replicas} replicas on average, {winner.policy} {winner_replicas}"]
    for name in sorted(loser.hours.keys() | winner.hours.keys()):
        loser_share, winner_share = (_share_of_hours(cell, name) for cell in (loser, winner))
        if abs(loser_share - winner_share) > 0.05:  # noqa: PLR2004 - five points of the hours are worth a word
            parts.append(
                f"{loser_share:.0%} of its replica hours are of {name}, of {winner.policy}'s {winner_share:.0%}"
            )
            break
    if (reversals := loser.figures["reversals"].mean) > 2 * winner.figures["reversals"].mean + 1:
        parts.append(f"it turns {reversals:.0f} times, {winner.policy} {_mean(winner, 'reversals')}")
    return "; ".join(parts)


def _mean(cell: Cell, figure: str) -> str:
    return f"{cell.figures[figure].mean:.1f}"


def _share_of_hours(cell: Cell, variant: str) -> float:
    total = sum(cell.hours.values())
    return cell.hours.get(variant, 0.0) / total if total else 0.0

"""The summary over seeds, the tuned member of a family, the winner, and comparisons of two policies."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest

from tests.sim.scorecard import fakes
from wva.model.records import replace
from wva.sim.scorecard.card import PolicyFamily, card
from wva.sim.scorecard.statistics import estimate, estimate_of_known, highest_certain, two_sided
from wva.sim.scorecard.verdicts import PairVerdict, compare, comparisons, why

FAMILY = PolicyFamily("hpa-inflight-tuned", tuple(fakes.MEMBERS))


def results(*policies, seeds=(1, 2, 3), of=None):
    """Return runs of some policies."""
    return [fakes.run(of or fakes.scenario(), policy, seed) for policy in policies for seed in seeds]


def made(*policies, seeds=(1, 2, 3), change=None):
    """Return the only part of a card; ``change`` maps a policy to other figures."""
    runs = results(*policies, seeds=seeds)
    runs = [replace(run, figures=replace(run.figures, **(change or {}).get(run.policy, {}))) for run in runs]
    (part,) = card([fakes.scenario()], runs, title="t", families=(FAMILY,)).parts
    return part


def test_an_interval_of_known_size():
    """For mean 2, deviation 1 and three seeds the half width is 4.303 / sqrt(3)."""
    found = estimate([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.half_width == pytest.approx(2.484, abs=0.001)


def test_one_seed_has_no_interval():
    """With one seed the interval is None, which is not zero."""
    assert estimate([5.0]).half_width is None
    assert estimate_of_known([None, None]) is None
    with pytest.raises(ValueError, match="no seed"):
        estimate([])


@pytest.mark.parametrize(
    ("t", "degrees", "probability"),
    [(12.706, 1, 0.05), (4.303, 2, 0.05), (2.776, 4, 0.05), (2.571, 5, 0.05), (2.042, 30, 0.05), (8.610, 4, 0.001)],
)
def test_how_probable_a_value_is_by_chance(t, degrees, probability):
    """The probability of values of Student's t is that of the printed tables."""
    assert two_sided(t, degrees) == pytest.approx(probability, rel=0.005)
    assert two_sided(0.0, degrees) == 1.0
    assert 0.0 <= two_sided(1e9, degrees) < 1e-6


def test_values_that_do_not_vary():
    """Without any spread a difference is no chance, and no difference is all chance."""
    assert estimate([0.1, 0.1, 0.1]).p_value == 0.0
    assert estimate([0.0, 0.0]).p_value == 1.0
    assert estimate([0.3]).p_value is None


def test_the_more_is_tested_the_more_it_takes():
    """The cutoff is that of Benjamini and Hochberg: the k-th lowest of n values is compared with 5 % times k / n."""
    assert highest_certain([]) == 0.05
    assert highest_certain([0.04]) == 0.04
    assert highest_certain([0.04, 0.5]) == 0.0
    assert highest_certain([0.5, 0.01, 0.024, 0.9]) == 0.024
    assert highest_certain([0.01, 0.02, 0.03, 0.04, 0.05]) == 0.05


def test_chance_alone_decides_next_to_nothing():
    """Of hundreds of policies that differ by chance alone some look certain one by one, and none on the card."""
    rng = np.random.default_rng(7)
    rivals = [f"rival-{number}" for number in range(200)]
    runs = [
        replace(run, policy=policy, figures=replace(run.figures, attainment=float(rng.normal(0.9, 0.03))))
        for policy in ("wva", *rivals)
        for run in results("wva", seeds=(1, 2, 3, 4, 5))
    ]
    found = card([fakes.scenario()], runs, title="t")
    (part,) = found.parts
    pairs = [(part.cell("wva"), part.cell(rival)) for rival in rivals]
    one_by_one = [compare(*pair).by for pair in pairs]
    assert one_by_one.count("attainment") > 5
    assert [compare(*pair, part.cutoff).by for pair in pairs].count("attainment") == 0
    assert found.tests == 400


def test_a_difference_that_stands_out_counts_among_many():
    """One policy that really differs is told among many that do not."""
    rng = np.random.default_rng(7)
    means = {"wva": 0.9, "worse": 0.7} | {f"rival-{number}": 0.9 for number in range(50)}
    runs = [
        replace(run, policy=policy, figures=replace(run.figures, attainment=float(rng.normal(mean, 0.005))))
        for policy, mean in means.items()
        for run in results("wva", seeds=(1, 2, 3, 4, 5))
    ]
    found = card([fakes.scenario()], runs, title="t")
    ((_, told),) = comparisons(found, "worse")
    assert (told.verdict, told.by) == (PairVerdict.WINS, "attainment")


def test_figures_are_means_over_seeds():
    """Figures are means over seeds, even those that the card computes from a run."""
    part = made("wva", "clairvoyant")
    cell = part.cell("wva")
    runs = results("wva")
    assert cell.attainment == pytest.approx(fmean(run.figures.attainment for run in runs))
    assert cell.figures["failed_share"].mean == pytest.approx(fmean(run.figures.timed_out / 10_000 for run in runs))
    assert 1.0 < cell.figures["reference_ratio"].mean < cell.cost_ratio
    assert cell.figures["peak_ratio"].mean == pytest.approx(1.5 * cell.cost_ratio)
    assert cell.figures["seconds_to_capacity"].mean > 130
    assert cell.late_tokens_by_cause["slow pod"] == pytest.approx(0.1 * (1 - cell.attainment), abs=0.001)
    assert sum(cell.missed_by_cause.values()) == pytest.approx(1 - cell.attainment, abs=0.001)


def test_a_figure_that_no_run_has_is_missing():
    """A figure that no run has is missing, such as a latency without served requests."""
    part = made("wva", change={"wva": {"ttft_p50_seconds": None, "seconds_to_capacity": ()}})
    assert part.cell("wva").figures.keys() & {"ttft_p50_seconds", "seconds_to_capacity"} == set()


def test_what_needs_nothing_has_no_ratio_to_it():
    """Where the ideal fleet has no replica at any time, there is no ratio of what was asked for to it."""
    assert "peak_ratio" not in made("wva", change={"wva": {"most_needed": 0.0}}).cell("wva").figures


def test_a_family_is_shown_as_its_best_member():
    """A family shows its cheapest member among those close to the best attainment. All members are in the grid."""
    part = made("wva", *fakes.MEMBERS)
    assert [cell.policy for cell in part.cells] == ["hpa-inflight-tuned", "wva"]
    assert part.cell("hpa-inflight-tuned").member == "hpa-inflight@4"
    assert {cell.policy for cell in part.grid} == set(fakes.MEMBERS)
    reached = {"hpa-inflight@4": {"attainment": 0.999}, "hpa-inflight@8": {"attainment": 0.991}}
    assert made(*fakes.MEMBERS, change=reached).cell("hpa-inflight-tuned").member == "hpa-inflight@8"


def test_the_winner_is_the_cheapest_that_reaches_the_goal():
    """The cheapest policy that reaches the goal wins. The clairvoyant policy takes no part."""
    assert made("wva", "hpa-kv", "clairvoyant").winner == "wva"
    assert made("wva", "hpa-kv", change={"hpa-kv": {"attainment": 0.992}}).winner == "hpa-kv"


def test_a_policy_that_costs_more_than_a_fixed_fleet_is_not_the_best():
    """A policy dearer than a fixed fleet wins only if all others are. The same holds for the targets of a family."""
    change = {"hpa-kv": {"attainment": 0.9, "cost": 161.0}, "static-peak": {"attainment": 0.5, "cost": 160.0}}
    change |= {"wva": {"attainment": 0.6, "cost": 110.0}}
    assert made("wva", "hpa-kv", change=change).winner == "hpa-kv"
    part = made("wva", "hpa-kv", "static-peak", change=change)
    assert part.winner == "wva"
    assert part.unaided == "hpa-kv", "without hindsight there is no fixed fleet to choose instead"
    members = {
        "hpa-inflight@4": {"attainment": 0.9, "cost": 800.0},
        "hpa-inflight@8": {"attainment": 0.7, "cost": 150.0},
    }
    part = made(*fakes.MEMBERS, "static-peak", change=members | {"hpa-inflight@16": {"attainment": 0.1}})
    assert part.cell("hpa-inflight-tuned").member == "hpa-inflight@8"


def test_hindsight_is_told_apart():
    """The card also names the best policy that does not know the traffic. A fixed fleet and tuned policies know it."""
    part = made("wva", "static-peak", *fakes.MEMBERS, change={"static-peak": {"cost": 100.0}})
    assert (part.winner, part.unaided) == ("static-peak", "wva")
    assert made("static-peak").unaided is None


def test_the_order_of_tables_is_given():
    """Policies outside of the given order follow by name."""
    found = card([fakes.scenario()], results("hpa-kv", "wva", "keda-prometheus"), title="t", order=("wva",))
    assert [cell.policy for cell in found.parts[0].cells] == ["wva", "hpa-kv", "keda-prometheus"]


def test_policies_with_different_seeds_are_not_compared():
    """Policies with different seeds had different traffic, so they are not compared."""
    runs = [*results("wva"), *results("hpa-kv", seeds=(1,))]
    with pytest.raises(ValueError, match="waves: not every policy"):
        card([fakes.scenario()], runs, title="t")


@pytest.mark.parametrize(
    ("figures", "verdict", "by"),
    [
        ({"attainment": 0.95}, PairVerdict.WINS, "attainment"),
        ({"attainment": 0.999}, PairVerdict.LOSES, "attainment"),
        ({"attainment": 0.98, "cost": 150.0}, PairVerdict.WINS, "cost"),
        ({"attainment": 0.98, "cost": 100.0}, PairVerdict.LOSES, "cost"),
    ],
)
def test_attainment_counts_first_and_then_cost(figures, verdict, by):
    """Attainment decides first. If two are within half a point, cost decides."""
    part = made("wva", "hpa-kv", change={"wva": {"attainment": 0.98}, "hpa-kv": figures})
    found = compare(part.cell("wva"), part.cell("hpa-kv"))
    assert (found.verdict, found.by) == (verdict, by)


def test_above_the_goal_only_cost_counts():
    """Above the goal, more requests in time do not count."""
    change = {"wva": {"attainment": 0.991, "cost": 100.0}, "hpa-kv": {"attainment": 1.0, "cost": 120.0}}
    part = made("wva", "hpa-kv", change=change)
    assert compare(part.cell("wva"), part.cell("hpa-kv")).verdict is PairVerdict.WINS


def test_a_difference_within_noise_is_none():
    """If the interval of a difference contains zero, the verdict is uncertain."""
    part = made("wva", "hpa-kv")
    noisy = replace(part.cell("hpa-kv"), attainments=(0.90, 0.99, 0.99), cost_ratios=part.cell("wva").cost_ratios)
    found = compare(part.cell("wva"), noisy)
    assert (found.verdict, found.by) == (PairVerdict.UNCERTAIN, None)
    assert why(found) == "no difference beyond noise"


def test_what_is_as_good_is_level():
    """Policies with equal figures are level, with no difference to explain."""
    part = made("wva", "hpa-kv")
    same = replace(part.cell("wva"), policy="same")
    assert compare(part.cell("wva"), same).verdict is PairVerdict.LEVEL
    assert why(compare(part.cell("wva"), same)) == "no difference"


def test_an_uncertain_difference_of_attainment_is_not_decided_by_cost():
    """A cheaper policy does not win as long as more of its requests may be late."""
    part = made("wva", "hpa-kv", change={"wva": {"cost": 100.0}, "hpa-kv": {"cost": 150.0}})

    def cell(policy, *attainments):
        known = part.cell(policy)
        return replace(
            known, attainments=attainments, figures=known.figures | {"attainment": estimate(list(attainments))}
        )

    steady = (0.95, 0.95, 0.95)
    assert compare(cell("wva", 0.70, 0.93, 0.94), cell("hpa-kv", *steady)).verdict is PairVerdict.UNCERTAIN
    assert compare(cell("hpa-kv", *steady), cell("wva", 0.70, 0.93, 0.94)).verdict is PairVerdict.UNCERTAIN
    assert compare(cell("wva", *steady), cell("hpa-kv", 0.70, 0.93, 0.94)).verdict is PairVerdict.WINS
    assert compare(cell("wva", 0.948, 0.95, 0.951), cell("hpa-kv", *steady)).verdict is PairVerdict.WINS


def test_why_names_causes_and_fleets():
    """The explanation has causes and fleets, with the numbers of both policies."""
    ((_, late),) = comparisons(
        card([fakes.scenario()], results("wva", "keda-prometheus"), title="t"), "keda-prometheus"
    )
    assert why(late).startswith("keda-prometheus is late more often because of decision (")
    part = made("wva", "hpa-kv", change={"hpa-kv": {"attainment": 0.98, "replica_hours": {"llama-h100": 4.0}}})
    text = why(compare(part.cell("wva"), part.cell("hpa-kv")))
    assert text.startswith("hpa-kv has 7.5 replicas on average, wva 6.6")
    assert "of wva's 75%" in text

"""A plan becomes a scorecard: every policy runs with every seed, targets are tuned in rounds."""

from __future__ import annotations

import json

import pytest

from tests.sim.scorecard import fakes
from wva.model.records import replace
from wva.sim.scorecard.card import PolicyFamily, best, card
from wva.sim.scorecard.markdown import FiguresBeside, markdown
from wva.sim.scorecard.quality import RunsFailedError, SuitePlan, judge, write
from wva.sim.scorecard.runs import Workshop
from wva.sim.scorecard.tables import tables
from wva.sim.scorecard.tuning import beside, spread

MEMBERS = (*fakes.MEMBERS, "hpa-inflight@32", "hpa-inflight@64")
FAMILY = PolicyFamily("hpa-inflight-tuned", MEMBERS)


def plan(seeds=(1, 2), **changes):
    """Return a plan of two scenarios."""
    fields = {
        "title": "Scorecard",
        "scenarios": (fakes.scenario(), fakes.scenario("again")),
        "policies": ("wva", "hpa-kv", "clairvoyant"),
        "families": (FAMILY,),
        "seeds": seeds,
        "order": ("wva", "hpa-kv"),
    }
    return SuitePlan(**fields | changes)


def judged(folder, of=None, run=fakes.run, told=None):
    """Return the scorecard of a plan, in this process."""
    told = [] if told is None else told
    return judge(of or plan(), Workshop(run, folder, "p"), workers=1, progress=lambda *about: told.append(about))


def test_targets_are_tuned_in_two_rounds(tmp_path):
    """Of few targets each runs with the first seed, and the best two of them run with all seeds."""
    told = []
    found = judged(tmp_path, told=told)
    assert len(told) == 2 * (3 * 2 + 5 + 2)
    assert {expected for _, expected in told} == {len(told)}
    (cell,) = [cell for cell in found.parts[0].cells if cell.policy == "hpa-inflight-tuned"]
    assert len(cell.attainments) == 2
    seeds = {member.policy: len(member.attainments) for member in found.parts[0].grid}
    assert sorted(seeds.values()) == [1, 1, 1, 2, 2]
    assert seeds[cell.member] == 2


def test_of_many_targets_those_beside_the_best_run(tmp_path, monkeypatch):
    """Of many targets every third runs, then those beside the best of them: the best of all is among them."""
    targets = (2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28)
    members = tuple(f"hpa-inflight@{target}" for target in targets)
    monkeypatch.setattr(fakes, "MEMBERS", dict(zip(members, targets, strict=True)))
    told = []
    of = plan(policies=("wva",), families=(PolicyFamily("hpa-inflight-tuned", members),), seeds=(1,))
    found = judged(tmp_path, of, told=told)
    ran = {member.policy for member in found.parts[0].grid}
    assert len(ran) < len(members)
    assert len(told) == 2 + sum(len(part.grid) for part in found.parts)
    everything = card([fakes.scenario()], [fakes.run(fakes.scenario(), name, 1) for name in members], title="")
    assert best(found.parts[0].grid).policy == best(everything.parts[0].cells).policy
    (tuned,) = [cell for cell in found.parts[0].cells if cell.policy == "hpa-inflight-tuned"]
    assert tuned.member in ran


def test_of_pairs_of_targets_every_second_one_runs_first():
    """Along both targets, the last ones too; then those around the best that have not run."""
    members = tuple(f"keda-tokens@{one},{two}" for one in (1, 2, 3, 4) for two in (10, 20, 30))
    first = spread(members)
    assert set(first) == {f"keda-tokens@{one},{two}" for one in (1, 3, 4) for two in (10, 30)}
    assert set(beside(members, lambda _: "keda-tokens@1,30")) == {
        "keda-tokens@1,20", "keda-tokens@2,20", "keda-tokens@2,30",
    }  # fmt: skip


def test_policies_of_roles_play_where_there_are_roles(tmp_path):
    """Elsewhere neither the policy nor a member of its family runs."""
    apart = replace(fakes.scenario(), name="apart")
    apart = replace(apart, variants=tuple(replace(setup, role="prefill") for setup in apart.variants))
    families = (PolicyFamily("hpa-inflight-tuned", tuple(fakes.MEMBERS)),)
    of = plan(policies=("wva", "hpa-inflight"), families=families)
    of = replace(of, scenarios=(fakes.scenario(), apart), of_roles=frozenset({"hpa-inflight"}))
    plain, roles = judged(tmp_path, of).parts
    assert {cell.policy for cell in plain.cells} == {"wva"}
    assert {cell.policy for cell in roles.cells} == {"wva", "hpa-inflight", "hpa-inflight-tuned"}


def test_no_policy_is_played_twice(tmp_path):
    """The target that a policy has by default is tried without a run of its own."""
    told = []
    same = {"hpa-inflight@8": "hpa-inflight", "hpa-inflight@4": "another"}
    found = judged(tmp_path, plan(policies=("wva", "hpa-inflight"), same=same), told=told)
    assert "hpa-inflight@8" not in {outcome.policy for outcome, _ in told}
    played = [(outcome.scenario, outcome.policy, outcome.seed) for outcome, _ in told]
    assert len(played) == len(set(played))
    default = found.parts[0].cell("hpa-inflight")
    (twin,) = [member for member in found.parts[0].grid if member.policy == "hpa-inflight@8"]
    assert twin.figures == default.figures
    assert "hpa-inflight@4" in {outcome.policy for outcome, _ in told}


def test_a_scenario_may_have_fewer_seeds(tmp_path):
    """The number of its seeds stands beside it, and on the page."""
    found = judged(tmp_path, plan(seeds=(1, 2, 3), fewer={"again": 2}))
    assert [part.seeds for part in tables(found).scenarios] == [3, 2]
    assert [{len(cell.attainments) for cell in part.cells} for part in found.parts] == [{3}, {2}]
    shown = markdown(tables(found), FiguresBeside("page", "data"))
    assert "with 2 or 3 seeds each" in shown
    rows = [line for line in shown.splitlines() if line.startswith(("| waves |", "| again |"))]
    assert [row.rsplit("|", 2)[1].strip() for row in rows] == ["3", "2"]


def test_one_seed_needs_one_round(tmp_path):
    """With one seed, one round runs every target, and each may win."""
    found = judged(tmp_path, plan(seeds=(1,)))
    assert {len(member.attainments) for member in found.parts[0].grid} == {1}


def test_the_files_are_the_same_each_time(tmp_path):
    """The files are the same each time, even if the runs exist already."""
    contents = []
    for folder in ("one", "two", "two"):
        (tmp_path / folder).mkdir(exist_ok=True)
        found = judged(tmp_path / folder / "runs")
        contents.append([path.read_bytes() for path in write(found, tmp_path / folder)])
    assert contents[0] == contents[1] == contents[2]


def test_the_json_has_every_target_and_every_comparison(tmp_path):
    """The JSON has every target and every comparison; the tables have fewer."""
    write(judged(tmp_path / "runs"), tmp_path)
    document = json.loads((tmp_path / "scorecard.json").read_bytes())
    assert [scenario["name"] for scenario in document["scenarios"]] == ["waves", "again"]
    scenario = document["scenarios"][0]
    assert {target["policy"] for target in scenario["targets"]} == set(MEMBERS)
    assert [each["against"] for each in scenario["comparisons"]] == ["hpa-kv", "hpa-inflight-tuned"]
    assert {each["verdict"] for each in scenario["comparisons"]} <= {"wins", "level", "uncertain", "loses"}
    wva = next(policy for policy in scenario["policies"] if policy["policy"] == "wva")
    assert {"gpu_hours", "goodput_per_second", "ttft_attainment", "cost_ratio", "reference_ratio"} <= set(
        wva["figures"]
    )


def test_plots_are_of_the_first_seed_and_of_the_target_that_won(tmp_path):
    """The plots read the first seed's run from its file, because memory cannot hold all timelines."""
    part = judged(tmp_path).parts[0]
    (cell,) = [cell for cell in part.cells if cell.policy == "hpa-inflight-tuned"]
    assert part.timelines["hpa-inflight-tuned"] == fakes.run(fakes.scenario(), cell.member, 1).timeline


def test_no_scorecard_leaves_out_a_run_that_failed(tmp_path):
    """If a run fails there is no scorecard. All other runs are made and kept for the next time."""
    told = []
    with pytest.raises(RunsFailedError) as caught:
        judged(tmp_path, run=fakes.broken_run, told=told)
    assert [(each.scenario, each.policy) for each in caught.value.failed] == [("again", "hpa-kv"), ("waves", "hpa-kv")]
    assert len(told) == 2 * (3 * 2 + 5)

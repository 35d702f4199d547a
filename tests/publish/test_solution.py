"""The solution of the queueing formulas: at debug and in ``wva decide --explain``, for the models that they sized."""

from __future__ import annotations

import re

import pytest
import structlog

from tests.builders import NOW, variant
from tests.decide.queueing.samples import KNOWN, UNTUNED, pod, steady
from wva.hindsight.cycle import Recording
from wva.model.inventory import AcceleratorPool, Inventory
from wva.model.memory import Memory
from wva.model.policy import Analyzer, SaturationPolicy
from wva.model.records import replace
from wva.model.service import AcceleratorCost
from wva.model.snapshot import Snapshot
from wva.publish.cycle_log import log_models
from wva.publish.solution import MOST, solution

POLICY = replace(
    KNOWN,
    saturation=SaturationPolicy(analyzer_name=Analyzer.QUEUEING),
    queueing=UNTUNED,
    accelerator_costs=(AcceleratorCost("A100", 40.0, "NVIDIA-A100-PCIE-80GB"),),
)


def fleet(*names, replicas=2, rate=1 / 3):
    """Return a snapshot with variants on A100 that answer 40 requests a minute together, as in the tutorial."""
    own = [variant(name, replicas=replicas, accelerator="A100", cost=40.0, model="m") for name in names]
    pods = [pod(name, number, success_rate=rate, running=4) for name in names for number in range(replicas)]
    inventory = Inventory.of([AcceleratorPool("A100", 8, 2)])
    return replace(Snapshot.of(own, pods), inventory=inventory)


def concluded(snapshot, policy=POLICY):
    """Return a cycle under a steady load."""
    return Recording(NOW, policy, steady(snapshot, policy), snapshot).again()


def figures(line):
    """Return the numbers of a line by their names."""
    return {name: float(value) for name, value in re.findall(r"([\w-]+)=(-?[\d.]+(?:e[+-]\d+)?)(?=[,;}\s]|$)", line)}


def test_the_data_the_solution_and_the_total_are_told():
    """Prices, service class and parameters as given; then the variant; then the accelerators by type."""
    snapshot = fleet("a")
    prices, classes, first, second, server, heading, used, total = solution(concluded(snapshot))
    assert prices == "accelerator: name=A100, type=NVIDIA-A100-PCIE-80GB, cost=40"
    assert classes.startswith("serviceClass: name=Premium, model=m, priority=1, slo-itl=24, slo-ttft=500")
    assert [each.split("acc=")[1].split(",")[0] for each in (first, second)] == ["A100", "H100"]
    assert server.startswith(f"s=a:{variant('a').key.namespace}; c=Premium; m=m; rate=")
    found = figures(server)
    assert (found["num"], found["cost"], found["sol"], found["tk"]) == (2, 80, 1, 178)
    assert found["rate"] == pytest.approx(40)
    assert found["rate"] / found["num"] < found["maxRPM"] < found["rate"], "one replica is not enough, two are"
    assert 20 < found["servTime"] <= found["slo-itl"] == 24
    assert 0 <= found["waitTime"] < found["slo-ttft"] == 500
    assert 0 < found["rho"] < 1
    assert "sat=false" in server
    assert heading == "AllocationByType:"
    assert used == "name=NVIDIA-A100-PCIE-80GB, count=2, limit=8, cost=80"
    assert total == "totalCost=80"


def test_a_model_that_gets_more_than_its_replicas_take_is_saturated():
    """The bound of its variant keeps the number too small."""
    snapshot = fleet("a", rate=0.9)
    bounds = replace(snapshot.variants[0].bounds, maximum=2)
    snapshot = replace(snapshot, variants=(replace(snapshot.variants[0], bounds=bounds),))
    (server,) = [line for line in solution(concluded(snapshot)) if line.startswith("s=")]
    assert "sat=true" in server
    assert figures(server)["rho"] > 0.5


def test_a_variant_that_could_not_be_sized_has_no_allocation():
    """It has no parameters, and nothing is learned."""
    snapshot = fleet("a", "b")
    other = replace(snapshot.variants[1], accelerator="T4")
    snapshot = replace(snapshot, variants=(snapshot.variants[0], other))
    lines = solution(concluded(snapshot))
    (unknown,) = [line for line in lines if line.startswith("s=b:")]
    assert unknown.endswith("no allocation (what one of its replicas takes is not known)")
    assert "name=T4, count=2, limit=-, cost=80" in lines


def test_without_the_formulas_there_is_no_solution():
    """The other analyzers have no such figures."""
    snapshot = fleet("a")
    policy = replace(POLICY, saturation=SaturationPolicy())
    assert solution(Recording(NOW, policy, Memory(), snapshot).again()) == ()


def test_beside_another_analyzer_the_formulas_are_told_too():
    """In hybrid mode they measure every model."""
    snapshot = fleet("a")
    policy = replace(POLICY, saturation=SaturationPolicy(), proactive_model=True)
    assert any(line.startswith("s=a:") for line in solution(concluded(snapshot, policy)))


def test_many_models_have_few_lines():
    """The rest is counted."""
    cycle = concluded(fleet("a"))
    outcome = cycle.outcome
    (key,), (decision,) = outcome.solved, outcome.decisions
    models = [replace(key, model_id=f"m{number:03d}") for number in range(MOST + 3)]
    outcome = replace(
        outcome,
        solved=dict.fromkeys(models, outcome.solved[key]),
        decisions=tuple(replace(decision, model=model) for model in models),
    )
    lines = solution(replace(cycle, outcome=outcome))
    assert sum(line.startswith("s=") for line in lines) == MOST
    assert "3 more models" in lines
    assert lines[-1] == f"totalCost={80 * (MOST + 3)}"


def test_the_log_has_one_line_of_it_at_debug():
    """The words by which the tutorial of the Go controller finds it are in the line."""
    snapshot = fleet("a")
    logger = structlog.wrap_logger(
        None,
        wrapper_class=structlog.make_filtering_bound_logger(10),
        processors=[capture := structlog.testing.LogCapture()],
    )
    log_models(logger, concluded(snapshot))
    (line,) = [entry for entry in capture.entries if entry["event"] == "optimization_solution"]
    assert "AllocationByType:" in line["solution"]

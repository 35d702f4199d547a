"""Event, condition, log line and ``wva decide --explain`` show the steps from the analyzer to the published number."""

from __future__ import annotations

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.builders import NOW, variant
from tests.decide.queueing.samples import KNOWN, pod, steady
from tests.decide.story import FULL, snapshot
from tests.publish.statuses import condition, patched
from wva import log
from wva.cli import main
from wva.decide.pipeline import decide
from wva.hindsight.cycle import Recording
from wva.model.inventory import AcceleratorPool, Inventory
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.variant import Bounds
from wva.publish.announce import announcements, log_decision

BOUNDS = Bounds(None, 2, maximum_origin="HPA ns/a")
LIMITED = (
    Policy(enable_limiter=True),
    replace(
        snapshot(variant(replicas=2, desired=2), a=[FULL] * 2),
        inventory=Inventory.of([AcceleratorPool("A100", 3, 2)]),
    ),
    "measure 2, allocate 2 -> 3 (limited by gpu-limiter A100: 1 fewer), settle 3",
)
HYBRID = (
    replace(KNOWN, proactive_model=True),
    replace(
        snapshot(variant(desired=1, bounds=BOUNDS)),
        replicas=(pod(success_rate=0.9),),
    ),
    "measure 1, allocate 1 -> 2 (limited by HPA ns/a: 1 fewer), settle 2",
)


@pytest.mark.parametrize(("policy", "seen", "way"), [LIMITED, HYBRID], ids=["limited", "hybrid"])
def test_every_step_is_told_in_all_four_places(policy, seen, way, tmp_path, capsys):
    """All four places show the steps of one decision, with its limits and their amounts."""
    memory = steady(seen, policy)
    (decision,), _ = decide(seen, memory, policy, NOW)
    assert decision.way == way
    event = announcements(None, decision)[0]
    assert event.message.endswith(f" (steps: {way})")
    written = condition(patched(None, now=NOW, decision=decision), "OptimizationReady")
    assert written["message"].endswith(f"(target: {decision.desired} replicas; steps: {way})")

    with capture_logs() as lines:
        log_decision(log.get("optimizer"), decision)
    told = [f"{step.stage}: {step.before} -> {step.after}" for step in decision.steps]
    assert [line.split(" (")[0] for line in lines[0]["steps"]] == told
    limits = [step.limit for step in decision.steps if step.limit]
    assert [limit for limit in limits if not any(f"[{limit}]" in line for line in lines[0]["steps"])] == []

    path = tmp_path / "cycle.json"
    path.write_bytes(msgspec.json.encode(Recording(NOW, policy, memory, seen)))
    assert main(["decide", "--explain", str(path)]) == 0
    explained = capsys.readouterr().out.splitlines()[1 : len(decision.steps) + 1]
    for step, line in zip(decision.steps, explained, strict=True):
        assert line.split()[0] == step.stage
        assert step.change in line
        assert line.endswith(f"[{step.limit}]" if step.limit else step.reason)

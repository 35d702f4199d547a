"""At debug there is a line for each model of a cycle, and at info there is none."""

from __future__ import annotations

import structlog

from tests.builders import NOW, policy, replica, variant
from wva.hindsight.cycle import Recording
from wva.model.memory import Memory
from wva.model.snapshot import Snapshot
from wva.publish.cycle_log import MOST_MODELS, MOST_OF_A_MODEL, log_models

DEBUG, INFO = (structlog.make_filtering_bound_logger(level) for level in (10, 20))


def lines_of(snapshot, *, level=DEBUG):
    """Return the lines about a cycle, as a logger of this level writes them."""
    logger = structlog.wrap_logger(None, wrapper_class=level, processors=[capture := structlog.testing.LogCapture()])
    log_models(logger, Recording(NOW, policy(), Memory(), snapshot).again())
    return capture.entries


def test_a_model_is_told_from_what_was_read_to_what_was_settled():
    """Every step of the way to the number is in the line."""
    pods = [replica("a-0", kv=0.79, queue=2), replica("a-1", kv=None, queue=0)]
    (line,) = lines_of(Snapshot.of([variant("a", desired=1)], pods))
    assert (line["event"], line["log_level"], line["model"]) == ("model_decided", "debug", variant("a").model.model_id)
    first, second = line["read"]
    assert first.startswith("a-0: KV 0.79 (fresh")
    assert "KV missing" in second
    assert "1 of 2 replicas report" in line["believed"][0]
    assert line["allocated"][0].startswith("a: ")
    assert line["settled"][0].startswith("a: ")
    assert "by the rule" in line["settled"][0]


def test_at_info_nothing_is_written_or_computed():
    """The line costs nothing there."""
    assert lines_of(Snapshot.of([variant("a")], [replica(kv=0.2)]), level=INFO) == []


def test_the_lines_of_a_large_fleet_are_bounded():
    """The models whose numbers change come first, and the rest is counted."""
    names = [f"v{number:03d}" for number in range(MOST_MODELS + 20)]
    variants = [variant(name, model=f"m/{name}", desired=1) for name in names]
    pods = [replica(f"{name}-0", variant=name, kv=0.79 if name == names[-1] else 0.2) for name in names]
    *lines, last = lines_of(Snapshot.of(variants, pods))
    assert len(lines) == MOST_MODELS
    assert lines[0]["model"] == f"m/{names[-1]}"
    assert (last["event"], last["count"]) == ("models_left_out", 20)


def test_a_model_with_many_pods_has_a_short_line():
    """Some are shown, and the others are counted."""
    pods = [replica(f"a-{number:03d}", kv=0.2) for number in range(100)]
    (line,) = lines_of(Snapshot.of([variant("a", replicas=100, desired=100)], pods))
    assert len(line["read"]) == MOST_OF_A_MODEL + 1
    assert line["read"][-1] == f"and {100 - MOST_OF_A_MODEL} more"

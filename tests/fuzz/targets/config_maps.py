"""ConfigMaps of every kind, in the controller's namespace and in a tenant's, and the decisions that follow from them.

An input is a JSON mapping of keys to texts, or a list of such mappings that replace one another. Any other input
becomes the text of two entries.
"""

from __future__ import annotations

import json
import math

from tests.builders import NOW, replica, variant
from wva.api.meta import Key, ObjectMeta
from wva.api.variantautoscaling import VariantAutoscaling, VariantAutoscalingSpec
from wva.config import Inputs, load
from wva.config.keys import (
    ClassFields,
    CostFields,
    ProfileFields,
    QueueingFields,
    SaturationFields,
    ScaleToZeroFields,
    TargetFields,
)
from wva.config.kinds import MapKind
from wva.config.live import LiveConfiguration
from wva.decide.pipeline import conclude
from wva.model.memory import Memory
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey
from wva.numbers import MAX_REPLICAS

OWN, TENANT = "wva", "ns"
MODEL = "m"
MOST_ENTRIES = 50
LONGEST_LINE = 2_000
FIELDS = [
    SaturationFields.names(),
    ScaleToZeroFields.names(),
    QueueingFields.names(),
    ClassFields.names() | TargetFields.names() | {"data"},
    CostFields.names() | ProfileFields.names(),
]
"""The fields of entries, by kind of ConfigMap."""
_SETTINGS = load(Inputs({}, {"POD_NAMESPACE": OWN, "PROMETHEUS_BASE_URL": "https://p"}, {})).settings
_VA = VariantAutoscaling(metadata=ObjectMeta(name="a", namespace=TENANT), spec=VariantAutoscalingSpec(model_id=MODEL))
_SNAPSHOT = Snapshot.of(
    [variant("a", replicas=2), variant("b", replicas=1)],
    [replica("a-0", kv=0.5, queue=1), replica("a-1", kv=0.9, queue=9), replica("b-0", variant="b", kv=0.1)],
)


def words():
    """Return the fields of all kinds of ConfigMap, some keys, and pieces of YAML."""
    for fields in FIELDS:
        for name in sorted(fields):
            yield from (name, f"{name}: ")
    yield from ("default", "m", "ns", f"model_id: {MODEL}\n", f"namespace: {TENANT}\n", "0.8", "1e-300", "5", "0", "-1")
    yield from (
        "true",
        "off",
        '""',
        "10m",
        "1h30m",
        ": ",
        "\n",
        "- ",
        "  ",
        "&a ",
        "*a",
        "!!python/object",
        "|\n",
        ">-\n",
    )
    yield from ("[", "]", "{", "}", "#", "---\n", "...\n", "%YAML 9.9\n", "<<: ", "~", ".inf", ".nan", "0x10", "1_000")
    yield from (
        "saturation",
        "tokens",
        "queueing",
        "v0.5",
        "no-growth",
        "priority: 1\n",
        "data:\n- model: m\n",
        "\t",
        "? ",
    )


def check(data):
    """No text stops the controller; policies stay in range, messages short, and a deletion restores the defaults."""
    steps = _steps(data)
    policy = LiveConfiguration(_SETTINGS, refusal=lambda _: "")
    built_in = policy.policy
    taken = False
    for given in steps:
        for kind in MapKind:
            for namespace in (OWN, TENANT) if kind.local else (OWN,):
                _told(policy.apply(Key(namespace, kind.canonical), given))
        _judge(policy)
        taken = taken or policy.policy != built_in
    for kind in MapKind:
        for namespace in (OWN, TENANT):
            policy.apply(Key(namespace, kind.canonical), None)
    assert policy.policy == built_in
    return taken


def _steps(data):
    text = data.decode("utf-8", errors="replace")
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    steps = given[:3] if isinstance(given, list) else [given]
    found = [
        {key: value for key, value in list(step.items())[:MOST_ENTRIES] if isinstance(value, str)}
        for step in steps
        if isinstance(step, dict)
    ]
    return found or [{"default": text, "m": text}]


def _told(outcome):
    assert outcome is not None
    for line in (*outcome.problems, outcome.ignored, outcome.gone):
        assert len(line) <= LONGEST_LINE
        assert line.isprintable()


def _judge(live):
    policy = live.policy
    assert live.problem_for(_VA).isprintable()
    assert len(live.warnings()) <= 100_000
    for model in (ModelKey(TENANT, MODEL), ModelKey("other", "n")):
        thresholds = policy.saturation_for(model)
        assert 0 <= thresholds.kv_spare_trigger <= thresholds.kv_cache_threshold <= 1
        assert 0 <= thresholds.queue_length_threshold < math.inf
        assert 0 <= thresholds.queue_spare_trigger < math.inf
        assert 0 < thresholds.scale_up_threshold <= 1
        assert 0 < thresholds.transition_deadline_seconds < math.inf
        idle = policy.scale_to_zero_for(model)
        assert idle.enabled in {True, False}
        assert 0 < idle.retention_seconds < math.inf
        queue = policy.queueing_for(model)
        assert queue is None or (1 < queue.slo_multiplier < math.inf and queue.contradiction() is None)
        assert policy.optimizer_for(model) is not None
        target = policy.service_target_for(model)
        assert target is None or target.model_id == model.model_id
    outcome = conclude(_SNAPSHOT, Memory(), policy, NOW)
    assert outcome.failures == outcome.refused == ()
    assert [decision.key.name for decision in outcome.decisions] == ["a", "b"]
    assert all(0 <= decision.desired <= MAX_REPLICAS for decision in outcome.decisions)

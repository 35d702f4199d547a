"""The series about variants, as Prometheus scrapes them."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.publish.collectors import collector
from tests.publish.decisions import KEY, decision, held
from wva.api.meta import Condition
from wva.config import Settings
from wva.hindsight.shadow import Late, ShadowFigures
from wva.model.decision import Aim, Step
from wva.model.in_time import InTime, ServedShare
from wva.model.objectives import DEFAULT_OBJECTIVES, Objectives
from wva.model.variant import Bounds, VariantKey
from wva.publish.ledger import Ledger
from wva.publish.metrics import EXPLANATION, explanation

EXPLAINING = {family.name for family in EXPLANATION}


class MetricsScene:
    """A ledger, a registry, and the inputs of the collector."""

    def __init__(self, *, instance="", aliases=False):
        """Lead, with two replicas of every variant."""
        self.ledger = Ledger()
        self.current = {}
        self.leading = True
        self.registry = CollectorRegistry()
        reads = {"current": self.current.get, "leading": lambda: self.leading}
        self.registry.register(collector(self.ledger, instance=instance, aliases=aliases, **reads))

    def page(self):
        """Return the samples of the exposition, without those that explain a number."""
        lines = generate_latest(self.registry).decode().splitlines()
        return [line for line in lines if not line.startswith("#") and line.partition("{")[0] not in EXPLAINING]

    def value(self, name, **labels):
        """Return one sample, None when there is none."""
        base = {"variant_name": "va", "namespace": "ns"}
        return self.registry.get_sample_value(name, base | labels)


@pytest.fixture
def scene():
    """Return a scene without an instance label."""
    return MetricsScene()


PAGE = """\
# HELP wva_current_replicas Replicas of the variant that exist.
# TYPE wva_current_replicas gauge
wva_current_replicas{accelerator_type="H100",namespace="ns",variant_name="va"} 2.0
# HELP wva_desired_replicas Replicas that the variant should have.
# TYPE wva_desired_replicas gauge
wva_desired_replicas{accelerator_type="H100",namespace="ns",variant_name="va"} 3.0
# HELP wva_desired_ratio Desired over current replicas; the desired number itself while none exist.
# TYPE wva_desired_ratio gauge
wva_desired_ratio{accelerator_type="H100",namespace="ns",variant_name="va"} 1.5
# HELP wva_replica_scaling_total Changes of the desired number, by direction (up, down) and reason.
# TYPE wva_replica_scaling_total counter
wva_replica_scaling_total{direction="up",namespace="ns",reason="ScaleUp",variant_name="va"} 1.0
# HELP wva_desired_source 1 for where the number comes from: measured, held, previous-desired, current-replicas.
# TYPE wva_desired_source gauge
wva_desired_source{namespace="ns",source="measured",variant_name="va"} 1.0
"""


def test_the_page_of_one_variant_is_exactly_this(scene):
    """HPAs, adapters and dashboards depend on the names, types, labels and values."""
    scene.ledger.record([decision(2)])
    scene.ledger.record([decision(3)])
    page, found, _ = generate_latest(scene.registry).decode().partition("# HELP wva_desired_reason ")
    assert found
    assert page == PAGE


def test_every_series_has_the_labels_that_its_family_declares():
    """The table in docs/metrics.md lists the declared labels."""
    everything = decision(steps=(Step("allocate", "grow", 2, 3, "HPA va", 1),), settling_since=1.0, aim=Aim())
    condition = Condition("Ready", "False", "TargetConflict", "words")
    shadows = set()
    ledger = Ledger(asked_for_shadow=shadows.__contains__)
    made = collector(
        ledger,
        bounds=lambda _: Bounds(maximum=3),
        conditions=lambda _: (condition,),
        accounts=lambda _: ShadowFigures(late=Late()),
        role=lambda _: "prefill",
        in_time=lambda _: InTime(DEFAULT_OBJECTIVES, KEY, ServedShare(10.0, 0.9)),
    )
    ledger.record([decision(2)])
    ledger.record([everything])
    acting = made.samples_of(KEY)
    shadows.add(KEY)
    for family, *both in zip(made.heads, acting, made.samples_of(KEY), strict=True):
        samples = [sample for samples in both for sample in samples]
        assert samples
        assert {tuple(sorted(sample.labels)) for sample in samples} == {tuple(sorted(family.labels))}


def test_the_objectives_that_are_planned_for_have_a_series_each(scene):
    """An analyzer without objectives has none."""
    scene.ledger.record([decision(2)])
    assert scene.value("wva_objective_seconds", objective="first_token") is None
    scene.ledger.record([decision(2, aim=Aim(Objectives(3.0, 0.05)))])
    assert scene.value("wva_objective_seconds", objective="first_token") == 3.0
    assert scene.value("wva_objective_seconds", objective="between_tokens") == 0.05


@pytest.mark.parametrize(
    ("by", "limit"), [("HPA va", "maximum"), ("role decode", "role"), ("gpu-limiter H100", "gpus")]
)
def test_a_limit_is_of_one_of_three_kinds(by, limit):
    """The maximum of a scaler, another role of the model, or GPUs."""
    steps = (Step("allocate", "", 2, 3, by, 4),)
    rows = list(explanation(decision(3, steps=steps), Bounds(maximum=5, maximum_origin="HPA va")))
    labels = {"stage": "allocate", "limit": limit, "limited_by": by}
    assert ("wva_desired_limited_replicas", 4, labels) in rows


def test_the_role_has_a_series_of_its_own():
    """No other series has it as a label, since scalers select them by their labels."""
    roles, ledger = {KEY: "decode"}, Ledger()
    ledger.record([decision(2)])
    made = collector(ledger, role=lambda key: roles.get(key, ""))

    def told():
        return [sample for family in made.collect() for sample in family.samples if "role" in sample.labels]

    (only,) = told()
    assert (only.name, only.value) == ("wva_variant_role", 1.0)
    assert only.labels == {"variant_name": "va", "namespace": "ns", "model_name": "org/model", "role": "decode"}
    roles.clear()
    assert told() == []


def test_a_model_has_one_series_for_each_window_in_which_it_had_requests():
    """However many variants it has: one of them tells, so that no sum counts a model twice."""
    served = InTime(DEFAULT_OBJECTIVES, KEY, ServedShare(10.0, 0.9), ServedShare(100.0, 0.95))
    found, ledger = {decision().model: served}, Ledger()
    ledger.record([decision(), decision(key=VariantKey("ns", "other"))])
    made = collector(ledger, in_time=found.get, instance="blue")

    def told():
        family = next(each for each in made.collect() if each.name == "wva_in_time_ratio")
        return {(each.labels.pop("window"), *each.labels.items()): each.value for each in family.samples}

    labels = (("namespace", "ns"), ("model_name", "org/model"), ("controller_instance", "blue"))
    assert told() == {("5m", *labels): 0.9, ("1h", *labels): 0.95}
    found[decision().model] = InTime(DEFAULT_OBJECTIVES, KEY, None, ServedShare(100.0, 0.95))
    assert told() == {("1h", *labels): 0.95}
    found.clear()
    assert told() == {}


def test_an_instance_label_is_on_every_series(scene):
    """Every series has the label of the controller instance."""
    scene = MetricsScene(instance="blue")
    scene.ledger.record([decision(2)])
    scene.ledger.record([decision(3)])
    assert len(scene.page()) == 5
    assert all('controller_instance="blue"' in line for line in scene.page())


def test_a_dropped_variant_has_no_series(scene):
    """The next scrape has no series of a dropped variant, the counter included."""
    scene.ledger.record([decision(2)])
    scene.ledger.record([decision(3)])
    scene.ledger.drop(KEY)
    assert scene.page() == []


def test_a_variant_that_comes_back_starts_to_count_afresh(scene):
    """A new variant does not inherit the counts of a dropped one with the same name."""
    scene.ledger.record([decision(2)])
    scene.ledger.record([decision(3)])
    scene.ledger.drop(KEY)
    scene.ledger.record([decision(3)])
    assert not any(line.startswith("wva_replica_scaling") for line in scene.page())


def test_another_accelerator_leaves_one_series(scene):
    """An HPA sums all series that it finds, so two series of one variant would double its number."""
    scene.ledger.record([decision(accelerator="H100")])
    scene.ledger.record([decision(accelerator="A100")])
    found = [line for line in scene.page() if line.startswith("wva_desired_replicas{")]
    assert found == ['wva_desired_replicas{accelerator_type="A100",namespace="ns",variant_name="va"} 3.0']


def test_each_variant_has_one_series_per_name(scene):
    """Variants of the same name in two namespaces do not share a series."""
    scene.ledger.record([decision(1), decision(2, key=VariantKey("other", "va"))])
    assert len([line for line in scene.page() if line.startswith("wva_desired_replicas{")]) == 2


def test_a_standby_shows_nothing(scene):
    """An HPA would add the numbers of a standby to those of the leader."""
    scene.ledger.record([decision()])
    scene.leading = False
    assert scene.page() == []


def test_current_replicas_are_read_at_the_scrape(scene):
    """The cache is newer than the last decision; if it lacks the target, the decision's count is shown."""
    scene.ledger.record([decision(6, current=2)])
    assert scene.value("wva_current_replicas", accelerator_type="H100") == 2
    scene.current[KEY] = 4
    assert scene.value("wva_current_replicas", accelerator_type="H100") == 4
    assert scene.value("wva_desired_ratio", accelerator_type="H100") == 1.5


def test_the_ratio_without_replicas_is_the_number_itself(scene):
    """With 0 current replicas the ratio is the desired number, so WVA does not divide by zero."""
    scene.ledger.record([decision(3)])
    scene.current[KEY] = 0
    assert scene.value("wva_desired_ratio", accelerator_type="H100") == 3


def test_zero_is_published(scene):
    """An HPA needs the 0 to scale to zero."""
    scene.ledger.record([decision(0)])
    assert scene.value("wva_desired_replicas", accelerator_type="H100") == 0


def test_changes_of_the_number_are_counted_by_direction_and_reason(scene):
    """The counter counts changes of the number only, up and down apart."""
    down = decision().reason.SCALE_DOWN
    for entry in (decision(2), decision(3), decision(4), held(4), decision(3, reason=down)):
        scene.ledger.record([entry])
    assert scene.value("wva_replica_scaling_total", direction="up", reason="ScaleUp") == 2
    assert scene.value("wva_replica_scaling_total", direction="down", reason="ScaleDown") == 1
    assert len([line for line in scene.page() if line.startswith("wva_replica_scaling")]) == 2


def test_the_source_says_where_the_number_comes_from(scene):
    """A variant has one source series, and its value is 1."""
    scene.ledger.record([decision()])
    scene.ledger.record([held()])
    found = [line for line in scene.page() if line.startswith("wva_desired_source")]
    assert found == ['wva_desired_source{namespace="ns",source="previous-desired",variant_name="va"} 1.0']


def test_there_are_no_created_series(scene):
    """Some versions of the library add a ``_created`` series to a counter, which the original does not have."""
    scene.ledger.record([decision(2)])
    scene.ledger.record([decision(3)])
    assert not any("_created" in line for line in scene.page())


def test_each_gauge_has_an_alias_when_asked_for():
    """HPAs of older manifests ask for ``inferno_*``; each gauge has one, and counters have none."""
    scene = MetricsScene(instance="blue", aliases=True)
    scene.current[KEY] = 2
    scene.ledger.record([decision(current=2, desired=3)])
    lines = scene.page()
    originals = [line for line in lines if line.startswith("wva_") and not line.startswith("wva_replica_scaling")]
    aliases = [line for line in lines if line.startswith("inferno_")]
    assert aliases == [line.replace("wva_", "inferno_", 1) for line in originals]
    names = {line.partition("{")[0] for line in originals}
    description = Settings.model_fields["inferno_metric_aliases"].description
    assert names == set(re.findall(r"wva_\w+", description))


def test_there_are_no_aliases_unless_asked_for(scene):
    """Aliases double the number of series, so they are off by default."""
    scene.ledger.record([decision()])
    assert "inferno" not in "".join(scene.page())

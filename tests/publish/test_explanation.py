"""The series that explain the numbers, as Prometheus scrapes them."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.publish.collectors import collector
from tests.publish.decisions import KEY, NOW, decision, held
from wva.model.decision import Reason, Step
from wva.model.metrics import Coverage
from wva.model.variant import Bounds, ModelKey
from wva.publish.ledger import Ledger
from wva.publish.metrics import EXPLANATION, OBSTACLE

EXPLAINING = {family.name for family in EXPLANATION} - {OBSTACLE}


class ExplanationScene:
    """A ledger, a registry, and the inputs of the collector."""

    def __init__(self, *, instance=""):
        """Lead; there are no bounds."""
        self.ledger = Ledger()
        self.bounds = {}
        self.leading = True
        self.registry = CollectorRegistry()
        reads = {"bounds": self.bounds.get, "leading": lambda: self.leading}
        self.registry.register(collector(self.ledger, instance=instance, **reads))

    def page(self, name=""):
        """Return the samples that explain a number and whose name begins with ``name``."""
        lines = generate_latest(self.registry).decode().splitlines()
        return [line for line in lines if line.startswith(name) and line.partition("{")[0] in EXPLAINING]


@pytest.fixture
def scene():
    """Return a scene without an instance label."""
    return ExplanationScene()


STEPS = (
    Step("analyze", "draft", 2, 2),
    Step("optimize", "grow", 2, 9),
    Step("enforce", "9 is above the maximum 7 of HPA va", 9, 7, "HPA va", 2),
    Step("limit", "gpu-limiter A has 1 GPU left", 7, 3, "gpu-limiter A", 4),
)
PAGE = """\
wva_desired_reason{held="false",namespace="ns",reason="GpuLimited",variant_name="va"} 1.0
wva_desired_step_replicas{namespace="ns",stage="analyze",variant_name="va"} 2.0
wva_desired_step_replicas{namespace="ns",stage="optimize",variant_name="va"} 9.0
wva_desired_step_replicas{namespace="ns",stage="enforce",variant_name="va"} 7.0
wva_desired_step_replicas{namespace="ns",stage="limit",variant_name="va"} 3.0
wva_desired_limited_replicas{limit="maximum",limited_by="HPA va",namespace="ns",stage="enforce",variant_name="va"} 2.0
wva_desired_limited_replicas{limit="gpus",limited_by="gpu-limiter A",namespace="ns",stage="limit",variant_name="va"} 4.0
wva_coverage_ratio{namespace="ns",variant_name="va"} 1.0
wva_maximum_replicas{namespace="ns",variant_name="va"} 7.0
wva_settling_since_timestamp_seconds{namespace="ns",variant_name="va"} 1.7e+09
wva_variant_cost{accelerator_type="H100",model_name="org/model",namespace="ns",variant_name="va"} 10.0
"""


def test_the_page_of_one_variant_is_exactly_this(scene):
    """Alerts and dashboards depend on every name and label."""
    scene.bounds[KEY] = Bounds(maximum=7, maximum_origin="HPA va")
    scene.ledger.record([decision(3, reason=Reason.GPU_LIMITED, steps=STEPS, settling_since=NOW)])
    assert scene.page() == PAGE.splitlines()


def test_what_is_not_so_has_no_series(scene):
    """A settled variant without maximum and limit has series for reason, steps, coverage and cost only."""
    scene.ledger.record([decision()])
    assert {line.partition("{")[0] for line in scene.page()} == {
        "wva_desired_reason",
        "wva_desired_step_replicas",
        "wva_coverage_ratio",
        "wva_variant_cost",
    }


def test_coverage_is_the_share_of_replicas_that_report(scene):
    """The ratio follows each decision; without replicas or before the first decision it has no series."""
    for coverage, values in ((Coverage(1, 4), ["0.25"]), (Coverage(0, 4), ["0.0"]), (Coverage(0, 0), [])):
        scene.ledger.record([decision(coverage=coverage)])
        assert [line.split()[-1] for line in scene.page("wva_coverage_ratio")] == values
    scene.ledger.record([held(reason=Reason.NOT_DECIDED)])
    assert scene.page("wva_coverage_ratio") == []


def test_a_held_number_says_so(scene):
    """A variant has one series with its present reason, and the one of its former reason is gone."""
    scene.ledger.record([decision()])
    scene.ledger.record([held()])
    line = 'wva_desired_reason{held="true",namespace="ns",reason="PrometheusError",variant_name="va"} 1.0'
    assert scene.page("wva_desired_reason") == [line]


def test_a_stage_that_spoke_twice_counts_with_its_last_word(scene):
    """The last step of a stage counts, because Prometheus refuses a page that has a series twice."""
    steps = (*STEPS, Step("limit", "a step that its scaler ignores", 3, 2, "gpu-limiter A", 1))
    scene.ledger.record([decision(2, steps=steps)])
    found = scene.page("wva_desired_step_replicas") + scene.page("wva_desired_limited_replicas")
    assert len(found) == len({line.rpartition(" ")[0] for line in found})
    assert [line.rpartition(" ")[2] for line in found if 'stage="limit"' in line] == ["2.0", "1.0"]


def test_a_limit_of_an_unknown_amount_is_there(scene):
    """A limit whose amount is unknown has a series with the value 0."""
    scene.bounds[KEY] = Bounds(maximum=3, maximum_origin="HPA va")
    scene.ledger.record([decision(3, steps=(Step("optimize", "no GPUs", 3, 3, "ResourceQuota ns/gpus"),))])
    (line,) = scene.page("wva_desired_limited")
    assert 'limit="gpus",limited_by="ResourceQuota ns/gpus"' in line
    assert line.endswith(" 0.0")


def test_a_dropped_variant_and_a_standby_show_nothing(scene):
    """The next scrape has no series of a dropped variant, and none at all on a standby."""
    scene.ledger.record([decision()])
    scene.leading = False
    assert scene.page() == []
    scene.leading = True
    assert scene.page() != []
    scene.ledger.drop(KEY)
    assert scene.page() == []


def test_an_instance_label_is_on_every_series():
    """Every explaining series has the label of the controller instance."""
    scene = ExplanationScene(instance="blue")
    scene.bounds[KEY] = Bounds(maximum=7, maximum_origin="HPA va")
    scene.ledger.record([decision(3, steps=STEPS, settling_since=NOW)])
    assert len({line.partition("{")[0] for line in scene.page()}) == len(EXPLAINING)
    assert all('controller_instance="blue"' in line for line in scene.page())


def test_a_model_id_is_escaped(scene):
    """Users write the model ID, so it must not break the page."""
    scene.ledger.record([decision(model=ModelKey("ns", 'a"} 1\nb'))])
    (line,) = scene.page("wva_variant_cost")
    assert 'model_name="a\\"} 1\\nb"' in line

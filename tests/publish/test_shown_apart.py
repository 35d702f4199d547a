"""A variant whose series cannot be made does not remove the series of other variants."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from tests.publish.collectors import collector
from tests.publish.decisions import decision
from wva.api.meta import Condition
from wva.model.records import replace
from wva.model.variant import VariantKey
from wva.publish.ledger import Ledger

BAD, GOOD = VariantKey("ns", "bad"), VariantKey("ns", "good")


def raising(key):
    """Raise for the bad variant, and return None for the other."""
    if key == BAD:
        raise LookupError("text of a tenant")


def page(made):
    """Return the page of a collector."""
    registry = CollectorRegistry()
    registry.register(made)
    return generate_latest(registry).decode()


def ledger(**bad):
    """Return a ledger with both variants."""
    made = Ledger()
    made.record([replace(decision(), key=GOOD), replace(decision(), key=BAD, **bad)])
    return made


def test_the_number_is_shown_although_the_replicas_cannot_be_read():
    """The page shows the replicas of the decision instead, and the log says so once."""
    made = collector(ledger(), current=raising)
    with capture_logs() as lines:
        text = page(made) + page(made)
    for name in ("bad", "good"):
        assert f'wva_desired_replicas{{accelerator_type="H100",namespace="ns",variant_name="{name}"}}' in text
        assert f'wva_current_replicas{{accelerator_type="H100",namespace="ns",variant_name="{name}"}}' in text
    assert [(line["event"], line["variant"]) for line in lines] == [("variant_not_shown", "ns/bad")]


def test_a_number_that_cannot_be_shown_takes_none_of_the_others_away():
    """A number that is too large for a float removes only its own series."""
    text = page(collector(ledger(desired=10**400)))
    assert 'wva_desired_replicas{accelerator_type="H100",namespace="ns",variant_name="good"}' in text
    assert 'wva_desired_replicas{accelerator_type="H100",namespace="ns",variant_name="bad"}' not in text


def test_what_explains_a_number_is_shown_without_bounds_that_cannot_be_read():
    """If the bounds cannot be read, both variants still have their other series."""
    text = page(collector(ledger(), bounds=raising))
    assert 'variant_name="bad"' in text
    assert 'variant_name="good"' in text


def test_what_cannot_be_explained_takes_nothing_of_the_others_away():
    """A cost that is not a number removes only its own series."""
    text = page(collector(ledger(cost="?")))
    assert 'wva_variant_cost{accelerator_type="H100",model_name="org/model",namespace="ns",variant_name="good"}' in text
    assert 'wva_desired_reason{held="false",namespace="ns",reason="ScaleUp",variant_name="bad"}' in text


def test_obstacles_of_one_variant_that_cannot_be_told_hide_no_others():
    """A broken condition of one variant does not hide the obstacles of others."""
    condition = Condition("OptimizationReady", "False", "ModelFailed", "failed")
    made = collector(statuses=lambda: [BAD, GOOD], conditions={BAD: (None,), GOOD: (condition,)}.get)
    assert 'wva_variant_obstacle{namespace="ns",reason="ModelFailed",variant_name="good"} 1.0' in page(made)

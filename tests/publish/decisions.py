"""Decisions with default values, and strategies that vary them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from wva.model.decision import Decision, MetricsVerdict, Reason, Source, Step
from wva.model.metrics import Coverage
from wva.model.records import replace
from wva.model.variant import ModelKey, VariantKey

NOW = 1_700_000_000.0
KEY = VariantKey("ns", "va")
MEASURED = MetricsVerdict(available=True, reason="MetricsAvailable", message="fresh samples of all replicas")
UNREAD = MetricsVerdict(available=False, reason="MetricsUnavailable", message="no sample of any replica")


def decision(desired: int = 3, *, current: int = 2, **fields: Any) -> Decision:
    """Return a measured decision of the variant ns/va."""
    built = Decision(
        key=KEY,
        model=ModelKey("ns", "org/model"),
        accelerator="H100",
        cost=10.0,
        current=current,
        desired=desired,
        previous=current,
        reason=Reason.SCALE_UP,
        message="2 of 2 reporting replicas saturated",
        source=Source.MEASURED,
        metrics=MEASURED,
        coverage=Coverage(2, 2),
        steps=(Step("analyze", "draft", current, current), Step("optimize", "one more", current, desired)),
    )
    return replace(built, **fields)


def held(desired: int = 3, **fields: Any) -> Decision:
    """Return a decision that keeps the number because Prometheus does not answer."""
    fallback = {
        "reason": Reason.PROMETHEUS_ERROR,
        "message": "Prometheus did not answer",
        "source": Source.PREVIOUS_DESIRED,
        "metrics": UNREAD,
        "coverage": Coverage(0, 2),
    }
    return decision(desired, **(fallback | fields))


def decisions() -> st.SearchStrategy[Decision]:
    """Return decisions of the variant ns/va with any number, reason and accelerator."""
    return st.builds(
        decision,
        st.integers(0, 50),
        current=st.integers(0, 50),
        accelerator=st.text(max_size=6),
        reason=st.sampled_from(list(Reason)),
        source=st.sampled_from(list(Source)),
        message=st.text(max_size=40),
        metrics=st.sampled_from([MEASURED, UNREAD]),
        settling_since=st.none() | st.just(NOW - 30),
    )

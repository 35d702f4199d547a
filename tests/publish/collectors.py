"""A collector of the series about variants; a test says what it reads."""

from __future__ import annotations

from wva.publish.ledger import Ledger
from wva.publish.metrics import VariantCollector


def collector(ledger=None, **rest):
    """Return a collector of a leader; ``rest`` replaces what it reads."""
    reads = {
        "current": lambda _: None,
        "bounds": lambda _: None,
        "statuses": tuple,
        "conditions": lambda _: (),
        "leading": lambda: True,
    }
    return VariantCollector(ledger or Ledger(), **reads | rest)

"""Label sets of the contract, and names made unique for a shared server."""

from __future__ import annotations

SCOPED = ("team-a", "team-b", "llama", "qwen", "mistral", "contract-job")

Labels = frozenset[tuple[str, str]]
Result = dict[Labels, float]


def scoped(text: str, suffix: str) -> str:
    """Return the text with the names of this contract made unique by a suffix."""
    for word in SCOPED:
        text = text.replace(word, word + suffix)
    return text


def labels(**pairs: str) -> Labels:
    """Return a label set, the key of expected results; the keyword ``metric`` is the metric name."""
    return frozenset(("__name__" if name == "metric" else name, value) for name, value in pairs.items())


def by_pod(**values: float) -> Result:
    """Return a result with one label: ``by_pod(a_0=1)`` is 1 for pod ``a-0``."""
    return {labels(pod=pod.replace("_", "-")): value for pod, value in values.items()}

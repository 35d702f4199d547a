"""Finds engines that are slower than those of other pods of their variant, and says so.

A throttled GPU or a busy host can make an engine slow, and no series says so. Its steps then take longer than those of
other pods of the variant with as many requests. What a step should take follows from what has been learned
of the variant (``demand_engine``), so pods with more requests or longer prompts do not seem slow. While the load of the
variant has hardly varied, that is not known. Then the steps of a pod with more to do may take as many times as long.
Half of the pods may be slow: the reference is the pod a quarter from the fastest one.

The words change no number. Capacity is learned from all pods together, slow ones among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wva.decide.measure.demand_engine import EngineModel
from wva.model.memory import Fit, PodMemory, PodSteps
from wva.model.trouble import some_of

_FEWEST_GAPS: Final = 1000.0
_SHORTEST_SECONDS: Final = 300.0
"""Below this many gaps between tokens, or after a shorter time, a pod says too little of its steps: while requests come
in bursts, most of its gaps are of few moments, at which it had more of them than on average."""
_FEWEST_PODS: Final = 2
_SLOW: Final = 1.5
_VARIED: Final = 0.02
"""Squared variation of the load of a variant from which its effect on a step is known."""


def slow_pods(pods: Sequence[PodMemory], engine: EngineModel, prompt: float, fit: Fit) -> str:
    """Return in words which pods of a variant are slower than most; empty if none is known to be.

    ``prompt``: the tokens of a prompt that ``engine`` was derived for, from what ``fit`` has learned.
    """
    known = [pod for pod in pods if pod.steps.gaps >= _FEWEST_GAPS and pod.steps.seconds >= _SHORTEST_SECONDS]
    if len(known) < _FEWEST_PODS:
        return ""
    per_token = engine.prefill / prompt
    ratios = []
    for pod in known:
        steps = pod.steps
        usual = engine.base * steps.gaps + engine.slope * steps.batch + per_token * steps.prefilled
        ratios.append((steps.taken / usual, pod))
    ratios.sort(key=lambda pair: (pair[0], pair[1].name))
    least, reference = ratios[len(ratios) // 4]
    sure = _varied(fit)
    slow = [
        (ratio / least, pod.name)
        for ratio, pod in reversed(ratios)
        if ratio > _SLOW * least and (sure or _beyond(pod.steps, reference.steps))
    ]
    if not slow:
        return ""
    names = some_of([f"{name} ({ratio:.2g} times as long for a token)" for ratio, name in slow])
    count = f"{len(slow)} of {len(known)} pods {'is' if len(slow) == 1 else 'are'}"
    return f"{count} slower than others with as many requests: {names}; WVA plans with the mean of all pods"


def _varied(fit: Fit) -> bool:
    """Tell whether the load has varied so much that it is known what requests and prompts add to a step."""
    weight, *sums = fit.rows[0]
    means = (sums[0] / weight, sums[2] / weight)
    squares = (fit.rows[1][1] / weight, fit.rows[3][3] / weight)
    return all(square >= (1.0 + _VARIED) * mean * mean for mean, square in zip(means, squares, strict=True))


def _beyond(steps: PodSteps, others: PodSteps) -> bool:
    """Tell whether a pod is slow even if its steps were in proportion to what it has to do."""
    more = max(
        1.0,
        steps.batch * others.gaps / (others.batch * steps.gaps),
        steps.prefilled * others.gaps / max(others.prefilled * steps.gaps, 1e-9),
    )
    return steps.taken / steps.gaps > _SLOW * more * others.taken / others.gaps

"""The algorithm of the HorizontalPodAutoscaler (autoscaling/v2), as kube-controller-manager runs it. Pure.

In: at each look the replicas asked for, the replicas that exist, and the readings of each metric. Out: the replicas to
ask for. In this order:

1. A target held at 0 while the minimum is above 0 is left alone. One outside of its bounds is moved to the bound.
2. Each metric proposes a number (``External``, ``PerPod``); a change within the tolerance proposes the current number.
   The highest proposal counts. A metric without readings proposes nothing, and then no other may shrink the target.
3. The stabilization windows: growth takes the lowest proposal of its window, shrinking the highest of its own.
4. The rate policies, and the bounds.

Facts: https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/ and the package
pkg/controller/podautoscaler of Kubernetes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor
from typing import Any, Final, Literal, Self

TOLERANCE: Final = 0.1
"""--horizontal-pod-autoscaler-tolerance of kube-controller-manager."""


@dataclass(frozen=True, slots=True)
class Rate:
    """At most ``value`` pods, or ``value`` percent of the pods, in any ``period_seconds``."""

    kind: Literal["Pods", "Percent"]
    value: int
    period_seconds: float


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """How fast a target may go in one direction. ``select``: which policy counts, or "Disabled"."""

    window_seconds: float
    rates: tuple[Rate, ...]
    select: Literal["Max", "Min", "Disabled"] = "Max"

    def changed(self, **spec: Any) -> ScalingRules:
        """Return these rules with what an HPA's ``scaleUp`` or ``scaleDown`` says instead."""
        rates = self.rates
        if "policies" in spec:
            rates = tuple(Rate(rate["type"], int(rate["value"]), rate["periodSeconds"]) for rate in spec["policies"])
        window = spec.get("stabilizationWindowSeconds", self.window_seconds)
        return ScalingRules(window, rates, spec.get("selectPolicy", self.select))


DEFAULT_UP: Final = ScalingRules(0.0, (Rate("Pods", 4, 15.0), Rate("Percent", 100, 15.0)))
DEFAULT_DOWN: Final = ScalingRules(300.0, (Rate("Percent", 100, 15.0),))


@dataclass(frozen=True, slots=True)
class Behavior:
    """``spec.behavior`` of an HPA, with Kubernetes' defaults."""

    up: ScalingRules = DEFAULT_UP
    down: ScalingRules = DEFAULT_DOWN

    @classmethod
    def parse(cls, behavior: Mapping[str, Any]) -> Self:
        """Read ``spec.behavior``; what it leaves out is the default."""
        return cls(
            DEFAULT_UP.changed(**behavior.get("scaleUp", {})), DEFAULT_DOWN.changed(**behavior.get("scaleDown", {}))
        )


@dataclass(frozen=True, slots=True)
class External:
    """A metric of type External (or Object) with AverageValue: its sum, None where there is none, and the target."""

    value: float | None
    average: float

    def propose(self, current: int, exists: int, tolerance: float) -> int | None:
        """Return ceil(value / average), ``current`` inside the tolerance, None without a value."""
        if self.value is None:
            return None
        if exists and abs(1.0 - self.value / (self.average * exists)) <= tolerance:
            # Kubernetes answers with the number that exists. That is the same once the Deployment has made its pods,
            # and a known bug until then: https://github.com/kubernetes/kubernetes/issues/138505.
            return current
        return ceil(self.value / self.average)


@dataclass(frozen=True, slots=True)
class PerPod:
    """A metric of type Pods with AverageValue.

    ``readings`` has one value for each pod that has one. ``missing`` pods run without a value; ``pending`` ones do not
    run yet.
    """

    readings: Sequence[float]
    average: float
    missing: int = 0
    pending: int = 0

    def propose(self, current: int, exists: int, tolerance: float) -> int | None:
        """Return what the mean of the readings asks for, None without a reading.

        Pods without a value never add to a change: they count as idle where the others ask for more, and as on target
        where the others ask for less. Pending pods count, as idle, only where the others ask for more. If the result
        then points in the other direction than the readings alone, nothing changes.
        """
        del exists  # this type of metric is about the pods it sees
        if not self.readings:
            return None
        total, count = sum(self.readings), len(self.readings)
        ratio = total / (count * self.average)
        growing = ratio > 1.0
        if not self.missing and not (growing and self.pending):
            return current if abs(1.0 - ratio) <= tolerance else ceil(ratio * count)
        count += self.missing
        if growing:
            count += self.pending
        elif ratio < 1.0:
            total += self.missing * self.average
        ratio_of_all = total / (count * self.average)
        if (
            abs(1.0 - ratio_of_all) <= tolerance
            or (growing and ratio_of_all < 1.0)
            or (ratio < 1.0 and ratio_of_all > 1.0)
        ):
            return current
        wanted = ceil(ratio_of_all * count)
        turned = (ratio_of_all < 1.0 and wanted > current) or (ratio_of_all > 1.0 and wanted < current)
        return current if turned else wanted


Metric = External | PerPod


@dataclass(slots=True)
class SimulatedHpa:
    """One HPA: its spec, which may be changed between two looks, and what it remembers."""

    minimum: int
    maximum: int
    behavior: Behavior = Behavior()
    tolerance: float = TOLERANCE
    _proposals: deque[tuple[float, int]] = field(default_factory=deque)
    """Time and number of each proposal in the longer window."""
    _changes: deque[tuple[float, int]] = field(default_factory=deque)
    """Time and size of each change in the longest period of a rate."""

    def external(self, *, current: int, exists: int, value: float | None, average: float, now: float) -> int:
        """Look at one external metric. See ``look``."""
        return self.look([External(value, average)], current=current, exists=exists, now=now)

    def look(self, metrics: Sequence[Metric], *, current: int, exists: int, now: float) -> int:
        """Return the replicas to ask for. The algorithm assumes that the caller asks for them.

        ``current`` is spec.replicas of the target, ``exists`` its status.replicas; ``now`` rises from look to look.
        """
        replicas = self._decide(metrics, current=current, exists=exists, now=now)
        if replicas != current:
            self._changes.append((now, replicas - current))
        return replicas

    def _decide(self, metrics: Sequence[Metric], *, current: int, exists: int, now: float) -> int:
        if not self._proposals:
            # A controller that has just started takes the current number as the proposal before its own, so that a
            # restart does not shrink the target at once.
            self._proposals.append((now, current))
        if current == 0 and self.minimum != 0:
            return current
        if not self.minimum <= current <= self.maximum:
            return max(self.minimum, min(self.maximum, current))
        proposals = [metric.propose(current, exists, self.tolerance) for metric in metrics]
        known = [proposal for proposal in proposals if proposal is not None]
        if not known or (len(known) < len(proposals) and max(known) < current):
            return current
        stable = self._stabilize(max(known), current=current, now=now)
        return max(self.minimum, min(self.maximum, self._slow_down(stable, current=current, now=now)))

    def _stabilize(self, wanted: int, *, current: int, now: float) -> int:
        """Pass a proposal through the windows."""
        up, down = self.behavior.up.window_seconds, self.behavior.down.window_seconds
        self._proposals.append((now, wanted))
        while self._proposals[0][0] < now - max(up, down):
            self._proposals.popleft()
        # A window of 0 holds the newest proposal alone, although the first one has the same time.
        lowest = min((replicas for time, replicas in self._proposals if up and time >= now - up), default=wanted)
        highest = max((replicas for time, replicas in self._proposals if down and time >= now - down), default=wanted)
        return max(lowest, min(current, highest))

    def _slow_down(self, wanted: int, *, current: int, now: float) -> int:
        """Pass a number through the rate policies."""
        periods = [rate.period_seconds for rate in (*self.behavior.up.rates, *self.behavior.down.rates)]
        while self._changes and self._changes[0][0] <= now - max(periods, default=0.0):
            self._changes.popleft()
        if wanted == current:
            return current
        rules = self.behavior.up if wanted > current else self.behavior.down
        if rules.select == "Disabled":
            return current
        sign = 1 if wanted > current else -1
        limits = []
        for rate in rules.rates:
            start = current - sum(change for time, change in self._changes if time > now - rate.period_seconds)
            if rate.kind == "Pods":
                limits.append(start + sign * rate.value)
            elif sign > 0:
                limits.append(ceil(start * (1 + rate.value / 100)))
            else:
                limits.append(floor(start * (1 - rate.value / 100)))
        farthest = rules.select == "Max"
        if sign > 0:
            return min(wanted, max(current, max(limits) if farthest else min(limits)))
        return max(wanted, min(current, min(limits) if farthest else max(limits)))

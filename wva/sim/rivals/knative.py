"""The Knative Pod Autoscaler (KPA): concurrency over a stable and a panic window.

It asks a proxy in each Ready pod once per second how many requests are in the pod, without Prometheus, and decides
every 2 s. Stable: mean concurrency of 60 s over the target. Panic: the same of 6 s. A panic begins once that asks for
at least twice the Ready pods, and ends when that has not been so for 60 s; meanwhile the KPA never shrinks. The last
pod goes only after 30 s more without a request.

Facts: https://knative.dev/docs/serving/autoscaling/kpa-specific/, the ConfigMap config-autoscaler, and the package
pkg/autoscaler/scaling of Knative Serving.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from math import ceil, floor
from typing import Final

from wva.sim.rivals.readings import TARGETS, LoadReading
from wva.sim.rivals.registry import register_with_targets
from wva.sim.rivals.scope import Scope, at_minimum, scaled
from wva.sim.stage.run import Policy
from wva.sim.stage.scenario import Scenario, VariantSetup
from wva.sim.stage.view import StageController, StageView

SCRAPE_SECONDS: Final = 1.0
TICK_SECONDS: Final = 2.0
CONCURRENCY: Final = 100.0
"""container-concurrency-target-default: requests at once that a pod is taken to serve."""


@dataclass(frozen=True, slots=True)
class KnativeSettings:
    """What config-autoscaler says; the defaults are Knative's."""

    concurrency: float = CONCURRENCY
    target_utilization: float = 0.7
    stable_window_seconds: float = 60.0
    panic_window_share: float = 0.1
    panic_threshold: float = 2.0
    max_scale_up_rate: float = 1000.0
    max_scale_down_rate: float = 2.0
    zero_grace_seconds: float = 30.0
    """scale-to-zero-grace-period"""

    @property
    def target(self) -> float:
        """Requests per pod that are aimed at."""
        return self.concurrency * self.target_utilization

    @property
    def panic_window_seconds(self) -> float:
        """Length of the window that a panic looks at."""
        return self.stable_window_seconds * self.panic_window_share


@dataclass(slots=True)
class PodAutoscaler:
    """The decisions for one revision. Pure."""

    settings: KnativeSettings
    _scrapes: deque[tuple[float, float]] = field(default_factory=deque)
    """Time and concurrency of each scrape in the stable window."""
    _panic_since: float | None = None
    _most: int = 0
    """Most pods that were asked for in this panic."""
    _started: bool = False

    def record(self, concurrency: float, *, now: float) -> None:
        """Take note of the requests in all pods together."""
        self._scrapes.append((now, concurrency))

    def decide(self, *, ready: int, now: float) -> int | None:
        """Return the pods to ask for, before bounds; None when nothing was seen in the stable window."""
        settings = self.settings
        while self._scrapes and self._scrapes[0][0] <= now - settings.stable_window_seconds:
            self._scrapes.popleft()
        if not self._scrapes:
            return None
        stable = _mean([value for _, value in self._scrapes])
        since = now - settings.panic_window_seconds
        panic = _mean([value for time, value in self._scrapes if time > since])
        return self.scale(stable=stable, panic=panic, ready=ready, now=now)

    def scale(self, *, stable: float, panic: float, ready: int, now: float) -> int:
        """Return the pods to ask for, before bounds, by the mean concurrency of each window."""
        settings = self.settings
        if not self._started:
            # Without a history it starts in panic: it does not shrink what it finds until a stable window has passed.
            self._started = True
            self._panic_since, self._most = (now, ready) if ready > 1 else (None, 0)
        pods = max(1, ready)
        highest, lowest = ceil(settings.max_scale_up_rate * pods), floor(pods / settings.max_scale_down_rate)
        by_panic = ceil(panic / settings.target)
        wanted = min(max(ceil(stable / settings.target), lowest), highest)
        if by_panic / pods >= settings.panic_threshold:
            self._panic_since = now
        elif self._panic_since is not None and now > self._panic_since + settings.stable_window_seconds:
            self._panic_since, self._most = None, 0
        if self._panic_since is None:
            return wanted
        self._most = max(self._most, wanted, min(max(by_panic, lowest), highest))
        return self._most


class Revision:
    """Knative on one variant: scrapes each second, decides each second time."""

    period_seconds = SCRAPE_SECONDS

    def __init__(self, variant: VariantSetup, settings: KnativeSettings, *, buffers: bool) -> None:
        """``buffers``: requests at the gateway are this revision's, as if Knative's activator held them."""
        self._variant = variant
        self._autoscaler = PodAutoscaler(settings)
        self._buffers = buffers
        self._decide_at = 0.0
        self._idle_since: float | None = None

    def act(self, stage: StageView, now_seconds: float) -> None:
        """Scrape, and scale when it is time."""
        setup = self._variant
        view = stage.variants[setup.name]
        ready = [pod for pod in view.pods if pod.ready]
        concurrency = float(sum(stage.in_flight(pod.name) for pod in ready))
        if self._buffers:
            concurrency += stage.gateway_waiting()
        self._autoscaler.record(concurrency, now=now_seconds)
        if now_seconds < self._decide_at:
            return
        self._decide_at = now_seconds + TICK_SECONDS - SCRAPE_SECONDS / 2
        wanted = self._autoscaler.decide(ready=len(ready), now=now_seconds)
        if wanted is not None:
            wanted = max(setup.minimum, min(setup.maximum, wanted))
            stage.scale(setup.name, self._graced(wanted, view.replicas, now_seconds))

    def _graced(self, wanted: int, replicas: int, now: float) -> int:
        """Return the number to set: zero waits for the grace period."""
        if wanted > 0:
            self._idle_since = None
            return wanted
        self._idle_since = now if self._idle_since is None else self._idle_since
        return 0 if now >= self._idle_since + self._autoscaler.settings.zero_grace_seconds else replicas


def kpa(scenario: Scenario, concurrency: float, scope: Scope) -> list[StageController]:
    """Return what Knative runs in a scenario; the first of its variants takes what waits at the gateway."""
    variants = scaled(scenario, scope)
    settings = KnativeSettings(concurrency=concurrency)
    revisions = [Revision(variant, settings, buffers=variant is variants[0]) for variant in variants]
    return [*revisions, *at_minimum(scenario, variants)]


def kpa_policy(concurrency: float = CONCURRENCY, scope: Scope = Scope.ALL) -> Policy:
    """Return the KPA for pods that serve so many requests at once."""
    return lambda scenario, _: kpa(scenario, concurrency, scope)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


for _scope in Scope:
    register_with_targets(
        f"kpa{_scope.ending}",
        partial(kpa_policy, scope=_scope),
        default=CONCURRENCY,
        targets=TARGETS[LoadReading.IN_FLIGHT],
    )

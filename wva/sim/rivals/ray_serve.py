"""The request-based autoscaler of Ray Serve, as version 2.60 has it.

Handles note every 6 s how many requests they have sent and hold, and report that every 10 s. The controller takes the
mean of the last 30 s. It wants that mean over the target (2) as replicas; a factor (1) says how much of the way from
the running replicas to that number it goes. It acts once it has wanted more for 30 s without a break, or fewer for
600 s. Without a running replica any request starts one at once. It does not use Prometheus.

Facts: https://docs.ray.io/en/releases-2.60.0/serve/advanced-guides/advanced-autoscaling.html, and the modules
ray.serve.autoscaling_policy and ray.serve.config of that version.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Final

from wva.sim.rivals.readings import TARGETS, LoadReading
from wva.sim.rivals.registry import register_with_targets
from wva.sim.rivals.scope import Scope, at_minimum, scaled
from wva.sim.stage.run import Policy
from wva.sim.stage.scenario import Scenario, VariantSetup
from wva.sim.stage.view import StageController, StageView

TICK_SECONDS: Final = 1.0
"""Ray Serve decides every 0.1 s; its delays are times, so that only their ends are coarser here."""
ONGOING_REQUESTS: Final = 2.0
"""The default target: requests per replica that are being served or wait."""
_ROUNDING_SECONDS: Final = 1e-6


@dataclass(frozen=True, slots=True)
class RayServeSettings:
    """An ``AutoscalingConfig`` with what surrounds it; the defaults are Ray Serve's.

    ``upscaling_factor`` and ``downscaling_factor`` say which share of the way to the wanted number it goes.
    """

    target_ongoing_requests: float = ONGOING_REQUESTS
    upscale_delay_seconds: float = 30.0
    downscale_delay_seconds: float = 600.0
    downscale_to_zero_delay_seconds: float | None = None
    """None is ``downscale_delay_seconds``."""
    upscaling_factor: float = 1.0
    downscaling_factor: float = 1.0
    look_back_seconds: float = 30.0
    record_seconds: float = 6.0
    report_seconds: float = 10.0


@dataclass(slots=True)
class RayServeAutoscaler:
    """The decisions for one deployment. Pure."""

    settings: RayServeSettings
    _upward: bool = False
    _since: float | None = None
    """Since when it has wanted more, or fewer, replicas without a break."""

    def decide(self, *, ongoing: float, running: int, target: int, now: float) -> int:
        """Return the replicas to ask for, before bounds.

        ``ongoing``: the mean number of requests of the deployment. ``target``: what was asked for before.
        """
        if running == 0:
            # Neither the rule nor the delays count: the first request starts replicas, and starting ones are not ended.
            return max(ceil(self.settings.upscaling_factor), target) if ongoing > 0 else target
        return self._delayed(self._wanted(ongoing, running), target=target, now=now)

    def _wanted(self, ongoing: float, running: int) -> int:
        """Return the number before the delays."""
        exact = running * (ongoing / (self.settings.target_ongoing_requests * running))
        change = exact - running
        factor = self.settings.upscaling_factor if change > 0 else self.settings.downscaling_factor
        wanted = ceil(running + factor * change)
        return wanted - 1 if ceil(exact) < running == wanted else wanted

    def _delayed(self, wanted: int, *, target: int, now: float) -> int:
        if wanted == target:
            self._since = None
            return target
        upward = wanted > target
        if self._since is None or upward != self._upward:
            self._upward, self._since = upward, now
        settings = self.settings
        delay = settings.upscale_delay_seconds if upward else settings.downscale_delay_seconds
        if not upward and target > 1:
            wanted = max(1, wanted)  # zero comes only after one
        elif not upward and settings.downscale_to_zero_delay_seconds is not None:
            delay = settings.downscale_to_zero_delay_seconds
        if now - self._since + _ROUNDING_SECONDS < delay:
            return target
        self._since = None
        return max(0, wanted)


@dataclass(slots=True)
class HandleMetrics:
    """What the handles of one deployment report to the controller: the mean number of requests of the last while."""

    settings: RayServeSettings
    _noted: deque[tuple[float, float]] = field(default_factory=deque)
    _note_at: float = 0.0
    _report_at: float = 0.0
    _reported: float | None = None

    def look(self, ongoing: float, *, now: float) -> float | None:
        """Note the requests if it is time; return the mean as reported last, None before the first report."""
        if now >= self._note_at:
            self._noted.append((now, ongoing))
            self._note_at = now + self.settings.record_seconds
        while self._noted and self._noted[0][0] <= now - self.settings.look_back_seconds:
            self._noted.popleft()
        if now >= self._report_at and self._noted:
            self._reported = sum(value for _, value in self._noted) / len(self._noted)
            self._report_at = now + self.settings.report_seconds
        return self._reported


class RayServeDeployment:
    """Ray Serve on one variant."""

    period_seconds = TICK_SECONDS

    def __init__(self, variant: VariantSetup, settings: RayServeSettings, *, buffers: bool) -> None:
        """``buffers``: requests at the gateway wait in the handle of this deployment."""
        self._variant = variant
        self._autoscaler = RayServeAutoscaler(settings)
        self._metrics = HandleMetrics(settings)
        self._buffers = buffers

    def act(self, stage: StageView, now_seconds: float) -> None:
        """Count the requests, and scale."""
        setup = self._variant
        view = stage.variants[setup.name]
        running = [pod for pod in view.pods if pod.ready]
        now_ongoing = float(sum(stage.in_flight(pod.name) for pod in running))
        if self._buffers:
            now_ongoing += stage.gateway_waiting()
        ongoing = self._metrics.look(now_ongoing, now=now_seconds)
        if ongoing is not None:
            wanted = self._autoscaler.decide(
                ongoing=ongoing, running=len(running), target=view.replicas, now=now_seconds
            )
            stage.scale(setup.name, max(setup.minimum, min(setup.maximum, wanted)))


def ray_serve(scenario: Scenario, ongoing_requests: float, scope: Scope) -> list[StageController]:
    """Return what Ray Serve runs in a scenario; the first of its variants takes what waits at the gateway."""
    variants = scaled(scenario, scope)
    settings = RayServeSettings(target_ongoing_requests=ongoing_requests)
    deployments = [RayServeDeployment(variant, settings, buffers=variant is variants[0]) for variant in variants]
    return [*deployments, *at_minimum(scenario, variants)]


def ray_serve_policy(ongoing_requests: float = ONGOING_REQUESTS, scope: Scope = Scope.ALL) -> Policy:
    """Return Ray Serve with this target of ongoing requests per replica."""
    return lambda scenario, _: ray_serve(scenario, ongoing_requests, scope)


for _scope in Scope:
    register_with_targets(
        f"ray-serve{_scope.ending}",
        partial(ray_serve_policy, scope=_scope),
        default=ONGOING_REQUESTS,
        targets=TARGETS[LoadReading.IN_FLIGHT],
    )

"""WVA as a policy on the stage: the shipped decision code, and the HPA that applies its number.

The controller decides on the Snapshot of each cycle as in a cluster. Its number goes the usual way: Prometheus scrapes
it from the controller's page, the metrics adapter reads it there, and the HPA of each variant asks the adapter. Between
two cycles the fast lane looks at the requests in progress, and may begin the next one. A model at zero is started by
the controller itself, which looks at the gateway once per second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import ClassVar, Final

from wva.config.keys import Settings
from wva.decide.pipeline import conclude
from wva.decide.start import Budget, activate
from wva.fast_lane import Urgency
from wva.model.decision import Decision
from wva.model.memory import Memory, VariantMemory
from wva.model.optimizers import Analyzer, Optimizer
from wva.model.policy import (
    Compatibility,
    Policy,
    QueueingPolicy,
    QueueingRules,
    SaturationPolicy,
    ScaleToZeroEntry,
    ScaleToZeroRules,
)
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey
from wva.sim.rivals.hpa import Behavior, SimulatedHpa
from wva.sim.rivals.registry import register
from wva.sim.stage.observe import EPOCH_SECONDS, NAMESPACE, Observer, inventory, of_cluster
from wva.sim.stage.run import Policy as StagePolicy
from wva.sim.stage.scenario import Scenario
from wva.sim.stage.view import StageController, StageView, stage_of

_FAST_LANE_SECONDS: Final = float(Settings.model_fields["fast_lane_interval"].default)
_INSTANT_SECONDS: Final = 1e-6
"""A cycle that is due so soon is due now: times are sums."""


@dataclass(frozen=True, slots=True)
class WvaSetup:
    """A configuration of the controller, and of the HPAs that apply its number.

    ``fast_lane_seconds`` is the longest time between two looks of the fast lane, 0 for none. ``up_seconds`` and
    ``down_seconds`` are the stabilization windows. An interval or a window of None is that of the scenario.
    Models whose variants may all have no replica go to zero after the default time without a request. The
    objectives are those of the scenario.
    """

    policy: Policy = Policy()  # noqa: RUF009 - frozen
    interval_seconds: float | None = None
    fast_lane_seconds: float = _FAST_LANE_SECONDS
    up_seconds: float = 0.0
    down_seconds: float | None = None


class Cycles:
    """The optimizer of the controller, with its fast lane, for all models of the cluster.

    A call runs the cycle that is due; otherwise the fast lane looks, which may begin that cycle now. Where there are
    GPUs to count, the limiter is on. The numbers that its page has shown are kept.
    """

    joint = True

    def __init__(self, setup: WvaSetup, scenario: Scenario) -> None:
        """Start with an empty memory, as after a restart."""
        self._interval = setup.interval_seconds or scenario.interval_seconds
        self._look_seconds = setup.fast_lane_seconds
        self._urgency = Urgency()
        self.began = self.due = self._now = -inf
        self.grew = False
        self.ceilings: Mapping[ModelKey, float] = {}
        to_zero = all(variant.minimum == 0 for variant in scenario.all_variants)
        saturation = replace(
            setup.policy.saturation,
            target_ttft_milliseconds=1000.0 * scenario.objectives.ttft_seconds,
            target_itl_milliseconds=1000.0 * scenario.objectives.itl_seconds,
        )
        limited = setup.policy.enable_limiter or bool(scenario.gpus)
        self._policy = replace(setup.policy, saturation=saturation, enable_limiter=limited)
        self._policy = replace(self._policy, scale_to_zero=_TO_ZERO) if to_zero else self._policy
        self._observers = [self._observer(ModelKey(NAMESPACE, model.model_id)) for model in scenario.models]
        self._memory = Memory()
        self._shown: dict[str, list[tuple[float, int]]] = {}
        self.starting: dict[str, int] = {}
        """Variants that are being started from zero, with their numbers: no cycle takes that back."""

    def _observer(self, model: ModelKey) -> Observer:
        scale_to_zero = self._policy.scale_to_zero_for(model)
        return Observer(
            model,
            engines=self._policy.asks_engines(model),
            counters=self._policy.asks_counters(model),
            retention_seconds=scale_to_zero.retention_seconds if scale_to_zero.enabled else None,
        )

    @property
    def period_seconds(self) -> float:
        """Time until the next cycle or the next look, whichever comes first; before the first cycle, the interval."""
        if self.due == -inf:
            return self._interval
        return min(self.due, self._next_look()) - self._now

    def act(self, stage: StageView, now_seconds: float) -> None:
        """Run the cycle or the look that is due."""
        self._now = now_seconds
        due = now_seconds >= self.due - _INSTANT_SECONDS
        urgent = () if due else self._look(stage)
        if due or urgent:
            self._cycle(stage, now_seconds, urgent)

    def _next_look(self) -> float:
        seconds = self._look_seconds
        if not seconds or not self.ceilings:
            return inf
        return self._urgency.next_look(self, seconds=seconds, now=self._now)

    def _look(self, stage: StageView) -> tuple[ModelKey, ...]:
        """Let the fast lane look, and return the models for which a cycle is to begin now."""
        now, seconds = self._now, self._look_seconds
        if not self._urgency.wants(self, seconds=seconds, now=now):
            return ()
        in_progress = {observer.model: observer.in_progress(model, now) for observer, model in self.observed(stage)}
        urgent = tuple(sorted(self._urgency.urgent(self.ceilings, in_progress, seconds=seconds, now=now)))
        self._urgency.looked(self, seconds=seconds, now=now, woken=bool(urgent))
        return urgent

    def _cycle(self, stage: StageView, now_seconds: float, urgent: tuple[ModelKey, ...]) -> None:
        self.began, self.due = now_seconds, now_seconds + self._interval
        snapshot = replace(self.snapshot(stage, now_seconds), woken=bool(urgent), urgent=urgent)
        outcome = conclude(snapshot, self._memory, self._policy, EPOCH_SECONDS + now_seconds)
        self._memory, self.ceilings = outcome.memory, outcome.ceilings
        self.grew = outcome.grew
        for observer in self._observers:
            observer.retention_seconds = outcome.retentions.get(observer.model, observer.retention_seconds)
        for decision in outcome.decisions:
            if decision.key.name not in self.starting:
                self._show(decision, now_seconds)
                stage_of(stage, decision.key.name).ask(decision.key.name, decision.desired)

    def snapshot(self, stage: StageView, now_seconds: float) -> Snapshot:
        """Return the Snapshot of all models."""
        snapshots = [
            observer.snapshot(model, now_seconds, status=self.status) for observer, model in self.observed(stage)
        ]
        return of_cluster(snapshots, stage.pools)

    def observed(self, stage: StageView) -> Iterator[tuple[Observer, StageView]]:
        """Yield the observer of each model, and the model's stage."""
        yield from zip(self._observers, stage.models, strict=True)

    def start(self, decision: Decision, now_seconds: float) -> None:
        """Take over the number of a variant that is started from zero between two cycles."""
        self.starting[decision.key.name] = decision.desired
        entries = {entry.key: entry for entry in self._memory.variants}
        entries[decision.key] = VariantMemory(decision.key, decision.desired, None, 0)
        self._memory = replace(self._memory, variants=tuple(entries[key] for key in sorted(entries)))
        self._show(decision, now_seconds)

    def shown(self, variant: str, at_seconds: float) -> int | None:
        """Return the number that the page showed at a time; None before the first decision."""
        return next((number for time, number in reversed(self._shown.get(variant, [])) if time <= at_seconds), None)

    def status(self, variant: str) -> int | None:
        """Return the number in the status of a variant."""
        numbers = self._shown.get(variant)
        return numbers[-1][1] if numbers else None

    def _show(self, decision: Decision, now: float) -> None:
        numbers = self._shown.setdefault(decision.key.name, [])
        if not numbers or numbers[-1][1] != decision.desired:
            numbers.append((now, decision.desired))


class Scalers:
    """The HPA of each variant, for the controller's number."""

    decides = False
    joint = True

    def __init__(self, cycles: Cycles, setup: WvaSetup, scenario: Scenario) -> None:
        """Begin without history."""
        self.period_seconds = scenario.hpa_seconds
        self._cycles = cycles
        self._observation = scenario.observation
        down_seconds = scenario.hpa_down_seconds if setup.down_seconds is None else setup.down_seconds
        behavior = Behavior.parse(
            {
                "scaleUp": {"stabilizationWindowSeconds": setup.up_seconds},
                "scaleDown": {"stabilizationWindowSeconds": down_seconds},
            }
        )
        self._hpas = {
            variant.name: SimulatedHpa(variant.minimum, variant.maximum, behavior) for variant in scenario.all_variants
        }

    def act(self, stage: StageView, now_seconds: float) -> None:
        """Look at every variant once."""
        scraped = self.scraped(now_seconds)
        for model in stage.models:
            for name, view in model.variants.items():
                value = self._cycles.shown(name, scraped)
                replicas = self._hpas[name].external(
                    current=view.replicas,
                    exists=len(view.pods),
                    value=None if value is None else float(value),
                    average=1.0,
                    now=now_seconds,
                )
                model.scale(name, replicas)

    def scraped(self, now: float) -> float:
        """Return the time of the last scrape that the adapter knows."""
        period = self._observation.controller_scrape_seconds
        return (now - self._observation.adapter_seconds) // period * period


class Waker:
    """Starts each model at zero for which requests wait at the gateway, by writing the scale of one variant.

    It shows its number first, and waits until the metrics adapter knows it: an HPA that still reads the previous number
    would take the start back.
    """

    decides = False
    joint = True
    period_seconds = 1.0

    def __init__(self, cycles: Cycles, scalers: Scalers) -> None:
        """Report starts to ``cycles``; ``scalers`` know when the adapter can read a number."""
        self._cycles = cycles
        self._scalers = scalers

    def act(self, stage: StageView, now_seconds: float) -> None:
        """Look at the gateway of each model once."""
        starting = self._cycles.starting
        for name, replicas in list(starting.items()):
            if self._cycles.shown(name, self._scalers.scraped(now_seconds)) == replicas:
                stage_of(stage, name).scale(name, replicas)
                del starting[name]
        for observer, model in self._cycles.observed(stage):
            waiting = model.gateway_waiting()
            if not waiting or starting.keys() & model.variants.keys():
                continue
            variants = observer.snapshot(model, now_seconds, status=self._cycles.status).variants
            stock = inventory(stage.pools)
            decision = activate(variants, float(waiting), None if stock is None else Budget(stock))
            if isinstance(decision, Decision):
                self._cycles.start(decision, now_seconds)
                model.ask(decision.key.name, decision.desired)


def controllers(setup: WvaSetup, scenario: Scenario) -> list[StageController]:
    """Return the controllers of WVA with a configuration."""
    cycles = Cycles(setup, scenario)
    scalers = Scalers(cycles, setup, scenario)
    return [cycles, scalers, Waker(cycles, scalers)]


_TO_ZERO: Final = ScaleToZeroRules(default=ScaleToZeroEntry("default", "", enabled=True))


def _asking(analyzer: Analyzer, optimizer: Optimizer = Optimizer.BY_ANALYZER) -> Policy:
    return Policy(saturation=SaturationPolicy(analyzer_name=analyzer, optimizer_name=optimizer))


def _classes(ttft_milliseconds: float, itl_milliseconds: float) -> Policy:
    policy = QueueingPolicy(target_ttft_milliseconds=ttft_milliseconds, target_itl_milliseconds=itl_milliseconds)
    return Policy(queueing=QueueingRules(default=policy))


_V0_5: Final = Policy(compatibility=Compatibility.V0_5)

SETUPS: Final[Mapping[str, WvaSetup]] = MappingProxyType(
    {
        "wva": WvaSetup(),
        "wva-chart": WvaSetup(interval_seconds=60.0, up_seconds=240.0, down_seconds=240.0),
        # The defaults of the previous release.
        "wva-percentage": WvaSetup(_asking(Analyzer.PERCENTAGE), interval_seconds=30.0, down_seconds=120.0),
        "wva-one-step": WvaSetup(_asking(Analyzer.PERCENTAGE, Optimizer.ONE_STEP)),
        "wva-tokens": WvaSetup(_asking(Analyzer.TOKENS)),
        "wva-queueing": WvaSetup(_classes(1000.0, 50.0)),
        "wva-queueing-cost-aware": WvaSetup(_asking(Analyzer.QUEUEING, Optimizer.COST_AWARE)),
        "wva-hybrid": WvaSetup(Policy(proactive_model=True)),
        # Version 0.5 decided every 30 s: it ignored its setting.
        "wva-v0.5": WvaSetup(_V0_5, interval_seconds=30.0, up_seconds=240.0, down_seconds=240.0),
        "wva-v0.5-fast-hpa": WvaSetup(_V0_5, interval_seconds=30.0, up_seconds=0.0, down_seconds=0.0),
    }
)
"""Configurations by the name of their policy."""


@dataclass(frozen=True, slots=True)
class _WvaPolicy:
    """WVA with a configuration: one controller for all models of a scenario."""

    joint: ClassVar[bool] = True

    setup: WvaSetup

    def __call__(self, scenario: Scenario, seed: int) -> list[StageController]:
        del seed
        return controllers(self.setup, scenario)


def wva_policy(setup: WvaSetup) -> StagePolicy:
    """Return WVA with a configuration."""
    return _WvaPolicy(setup)


for _name, _setup in SETUPS.items():
    register(_name, wva_policy(_setup))

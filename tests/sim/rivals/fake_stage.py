"""A stage without engines. The test gives the requests in flight, and Ready pods share them evenly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from wva.sim.fleet.parameters import PRESETS
from wva.sim.stage.gpus import GpuPools
from wva.sim.stage.scenario import Scenario, StartUp, VariantSetup, WorldObservation
from wva.sim.stage.view import Scrape, ScrapedSignal, StageController, StagePodView, VariantView
from wva.sim.traffic.requests import Traffic

START_UP_SECONDS = 60.0


def setup(name: str = "h100", **changes) -> VariantSetup:
    """Return a variant whose pods take a minute to start."""
    values = {"accelerator": "H100", "parameters": PRESETS["H100"], "price": 4.0, "replicas": 1, "maximum": 20}
    return VariantSetup(name, **(values | {"start_up": StartUp(START_UP_SECONDS, 0.0)} | changes))


def scenario(*variants: VariantSetup, traffic: Traffic | None = None, **changes) -> Scenario:
    """Return a scenario in which the adapter has no delay."""
    return Scenario(
        "test",
        "a test",
        "test",
        variants or (setup(),),
        lambda _: even(1.0, 60.0) if traffic is None else traffic,
        **({"observation": WorldObservation(adapter_seconds=0.0)} | changes),
    )


def even(rate: float, seconds: float, *, prompt: int = 512, answer: int = 256) -> Traffic:
    """Return requests of one size, evenly spaced."""
    return requests(np.arange(rate * seconds) / rate, seconds, prompt=prompt, answer=answer)


def requests(arrivals: Sequence[float], seconds: float, *, prompt: int = 512, answer: int = 256) -> Traffic:
    """Return requests of one size."""
    count = len(arrivals)
    zeros = np.zeros(count, np.int64)
    return Traffic(
        seconds,
        np.asarray(arrivals, np.float64),
        zeros + prompt,
        zeros + answer,
        zeros - 1,
        zeros,
        zeros,
        np.zeros(count),
    )


class FakeStage:
    """Implements ``wva.sim.stage.view.Stage``."""

    def __init__(
        self,
        of: Scenario,
        in_flight: Callable[[float], float],
        *,
        lost: Callable[[str, float], bool] = lambda _pod, _at: False,
    ) -> None:
        """Begin at 0 with the scenario's replicas Ready. ``lost`` says which scrapes fail, of pod and time."""
        self.now = 0.0
        self.pools = GpuPools({})
        self.asked: list[tuple[float, str, int]] = []
        self.backlog_of = 0.0
        """Tokens of prompts that wait at each Ready pod."""
        self._scenario = of
        self._load = in_flight
        self._lost = lost
        self._spec = {one.name: one.replicas for one in of.variants}
        self._created: dict[str, list[tuple[str, float, float]]] = {one.name: [] for one in of.variants}
        self._scrapes: dict[str, list[Scrape]] = {}
        for one in of.variants:
            for _ in range(one.replicas):
                self._create(one.name, ready=0.0)

    @property
    def models(self) -> Sequence[FakeStage]:
        """The only model."""
        return [self]

    @property
    def variants(self) -> Mapping[str, VariantView]:
        """The variants now."""
        return {one.name: self._view(one) for one in self._scenario.variants}

    def scrapes(self, pod: str) -> Sequence[Scrape]:
        """Return one scrape per 15 s since the pod was Ready."""
        return self._scrapes[pod]

    def in_flight(self, pod: str) -> int:
        """Return the pod's share of the load."""
        assert any(one.name == pod and one.ready for view in self.variants.values() for one in view.pods)
        return round(self._share())

    def backlog(self, pod: str) -> int:
        """Return the tokens of prompts that wait at a pod."""
        assert pod in self._ready()
        return round(self.backlog_of)

    def gateway_queue(self) -> float | None:
        """Return the whole load while no pod is Ready."""
        return 0.0 if self._ready() else self._load(self.now)

    def gateway_waiting(self) -> int:
        """Return the gateway's queue as a whole number."""
        return round(self.gateway_queue() or 0.0)

    def ask(self, variant: str, replicas: int) -> None:
        """Do nothing: these tests look only at the replicas that are set."""

    def scale(self, variant: str, replicas: int) -> None:
        """Create or end pods at once."""
        if replicas != self._spec[variant]:
            self.asked.append((self.now, variant, replicas))
        self._spec[variant] = replicas
        pods = self._created[variant]
        while len(pods) < replicas:
            self._create(variant, ready=self.now + START_UP_SECONDS)
        while len(pods) > replicas:
            pods.remove(max(pods, key=lambda pod: (pod[2] > self.now, pod[1])))

    def run(self, controllers: Sequence[StageController], *, until: float) -> FakeStage:
        """Let time pass in steps of a second. All controllers act in the first step."""
        due = [self.now] * len(controllers)
        while self.now < until:
            if self.now % 15.0 == 0.0:
                self._scrape()
            for number, controller in enumerate(controllers):
                if due[number] <= self.now:
                    controller.act(self, self.now)
                    due[number] += controller.period_seconds
            self.now += 1.0
        return self

    def replicas(self, variant: str = "h100") -> int:
        """Return the replicas that were set last."""
        return self._spec[variant]

    def _create(self, variant: str, *, ready: float) -> None:
        name = f"{variant}-{len(self._scrapes)}"
        self._created[variant].append((name, self.now, ready))
        self._scrapes[name] = []

    def _view(self, one: VariantSetup) -> VariantView:
        pods = tuple(
            StagePodView(name, created, ready if ready <= self.now else None)
            for name, created, ready in self._created[one.name]
        )
        return VariantView(
            one.name,
            one.accelerator,
            one.price,
            one.minimum,
            one.maximum,
            one.parameters.max_num_seqs,
            one.parameters.kv_cache_tokens,
            self._spec[one.name],
            pods,
            role=one.role,
        )

    def _ready(self) -> list[str]:
        return [name for pods in self._created.values() for name, _, ready in pods if ready <= self.now]

    def _share(self) -> float:
        return self._load(self.now) / max(1, len(self._ready()))

    def _scrape(self) -> None:
        """Scrape the Ready pods: half of the requests in flight wait, 200 fill the KV cache, each gets 10 tokens/s."""
        share = self._share()
        values = [0.0] * len(ScrapedSignal)
        values[ScrapedSignal.RUNNING] = values[ScrapedSignal.WAITING] = share / 2
        values[ScrapedSignal.KV_USAGE] = min(1.0, share / 200)
        values[ScrapedSignal.GENERATION_TOKENS] = 10.0 * share * self.now
        for name in self._ready():
            self._scrapes[name].append(Scrape(self.now, () if self._lost(name, self.now) else tuple(values)))

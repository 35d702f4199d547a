"""Runs an attack on the controller and checks that the victim does not notice it.

To write a row, put an ``Attack`` into the list of a test file and run it with ``survive``::

    ATTACKS = [
        Attack(
            "paused_replicas_of_400_digits",
            before=lambda world: world.scaled_object(annotations={PAUSED_REPLICAS_ANNOTATION: "9" * 400}),
            shows=ExpectedCondition("ConfigurationValid", "False", contains="paused-replicas"),
        ),
        Attack(
            "a_deployment_that_asks_for_minus_one_replica",
            during=lambda world: world.twist(DEPLOYMENTS, "bad", lambda value: value["spec"].update(replicas=-1)),
            shows=ExpectedNumber(1),
        ),
    ]

    @pytest.mark.parametrize("attack", ATTACKS, ids=str)
    async def test_the_victim_does_not_notice(world, attack):
        \"\"\"The victim's number and series stay right and fresh.\"\"\"
        await survive(world, attack)

The name says what the attack does. ``before`` runs when both variants exist and before the controller starts.
``during`` runs once the victim has its first number. Both get the ``AttackWorld`` and may be coroutine functions;
``during`` may take as long as the attack needs. ``shows`` lists the effects on the tenant that the test waits for:
one of ``ExpectedCondition``, ``ExpectedEvent``, ``ExpectedNumber``, ``Says``, or a tuple of them.

The other fields of an ``Attack`` set the stage: ``environment`` of the controller, ``bad=False`` for a tenant that
builds its own variants in ``before``, ``gateway=True`` for a model of the victim at zero behind a gateway, which the
controller must start during the attack. ``setting`` patches limits of the controller, such as time-outs, so that a row
takes less than a second: ``setting={"wva.prometheus.client.QUERY_TIMEOUT_SECONDS": 0.3}``. ``world.meddle`` changes
the answers of Prometheus.

``survive`` asserts the same for all rows, and checks it every 10 ms while the controller runs: the victim has the right
number in ledger, status and on the page of metrics, also after its load has changed; its conditions are True; cycles
succeed and their time moves on; the process lives and its probes answer 200 over HTTP; the event loop lags at most
250 ms; memory does not grow beyond a limit. One AssertionError at the end lists all faults.

If only the lag or a callback of the controller was too long, ``survive`` repeats the attack on a new world, up to
twice: a delay that the attack causes comes back, and one that the machine causes does not.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from tests.app.gateways import QUEUE, FakePicker
from tests.app.stage import DEPLOYMENTS, until
from tests.attack.meter import Meter, as_controller
from tests.attack.world import SLEEPER, SLEEPING_MODEL, TENANT, VICTIM, AttackWorld
from wva.api.meta import Key
from wva.model.variant import VariantKey

MAX_LAG_SECONDS = 0.25
TIMES = 3
"""How often an attack runs at most, if each time only a delay was too long."""
MAX_GROWTH_MIB = 150
MIB = 1024**2
CYCLES = 3
"""How many cycles each part of an attack lasts at least."""

PATIENCE_SECONDS = 30.0
_QUICK = {"wva.scale_from_zero.starts.VISIBLE_SECONDS": 0.1, "wva.scale_from_zero.starts.SETTLE_SECONDS": 0.01}
"""The Prometheus of the tests does not scrape the controller, so a start from zero never sees its own number there."""

_PROBE_SECONDS = 5.0
_LOOK_OUTSIDE_SECONDS = 0.1
_TRUE = ("TargetResolved", "MetricsAvailable", "OptimizationReady", "Ready")
_TRUE_IF_THERE = ("ConfigurationValid", "GatewayReadable", "InventoryConsistent")
_SERIES = re.compile(r"^wva_desired_replicas\{([^}]*)\} (\S+)$", re.MULTILINE)
_LAST_CYCLE = re.compile(r"^wva_last_cycle_timestamp_seconds (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class ExpectedCondition:
    """A condition of the tenant's variant; empty texts fit everything."""

    type: str
    status: str = ""
    reason: str = ""
    contains: str = ""
    name: str = "bad"

    def __call__(self, world: AttackWorld) -> bool:
        """Tell whether the variant has the condition."""
        found = world.condition(self.type, self.name)
        return (
            found is not None
            and self.status in ("", found["status"])
            and self.reason in ("", found["reason"])
            and self.contains in found["message"]
        )


@dataclass(frozen=True)
class ExpectedEvent:
    """A Kubernetes event in the tenant's namespace that the attack must cause."""

    reason: str
    contains: str = ""

    def __call__(self, world: AttackWorld) -> bool:
        """Tell whether the controller recorded the event."""
        return any(
            self.contains in event["message"]
            for event in world.events(self.reason)
            if event["involvedObject"].get("namespace") == TENANT
        )


@dataclass(frozen=True)
class ExpectedNumber:
    """The right number of the tenant's variant, None if the variant must not have one."""

    expected: int | None
    name: str = "bad"

    def __call__(self, world: AttackWorld) -> bool:
        """Tell whether status and ledger have this number."""
        status = world.status_of(self.name, TENANT).get("desiredOptimizedAlloc") or {}
        decision = world.app.ledger.get(VariantKey(TENANT, self.name))
        told = None if decision is None else decision.desired
        return status.get("numReplicas") == self.expected == told


@dataclass(frozen=True)
class Says:
    """Any other check that must become true; ``what`` describes it in the error."""

    what: str
    check: Callable[[AttackWorld], Any] = field(repr=False)

    def __call__(self, world: AttackWorld) -> bool:
        """Tell whether the thing is true."""
        return bool(self.check(world))


def nothing(world: AttackWorld) -> None:
    """Do nothing."""
    del world


@dataclass(frozen=True)
class Attack:
    """One attack; the docstring of this module says how to write one."""

    name: str
    before: Callable[[AttackWorld], Any] = field(default=nothing, repr=False, kw_only=True)
    during: Callable[[AttackWorld], Any] = field(default=nothing, repr=False, kw_only=True)
    shows: Any = field(default=(), kw_only=True)
    bad: bool = field(default=True, kw_only=True)
    gateway: bool = field(default=False, kw_only=True)
    environment: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    setting: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    interval: str = field(default="30ms", kw_only=True)
    growth_mib: int = field(default=MAX_GROWTH_MIB, kw_only=True)

    def __str__(self) -> str:
        """Return the name; pytest uses it as the id of the test."""
        return self.name


class _Watch:
    """Looks at the victim from inside and outside, and notes everything that is wrong."""

    def __init__(self, world: AttackWorld) -> None:
        self.faults: Counter[str] = Counter()
        self.allowed: set[int] = set()
        self.task: asyncio.Task[int] | None = None
        self._world = world
        self._ready = False
        self._last_cycle = 0.0

    def look(self) -> None:
        """Check ledger, status and conditions. Before ``allowed`` is set, nothing counts as wrong."""
        if not self.allowed:
            return
        if self.task is not None and self.task.done():
            self.faults["the process has ended"] += 1
        decision = self._world.app.ledger.get(VariantKey(VICTIM, "va"))
        self._expect("the victim's number", None if decision is None else decision.desired)
        self._expect("the number in the victim's status", self._number())
        if decision is not None and (decision.held or not decision.metrics.available):
            self.faults[f"the victim is held: {decision.reason.value}: {decision.metrics.message[:200]}"] += 1
        for type_ in (*_TRUE, *_TRUE_IF_THERE):
            found = self._world.condition(type_, "va", VICTIM)
            if (found is None and type_ in _TRUE) or (found is not None and found["status"] != "True"):
                self.faults[f"the victim's condition {type_} is {found and found['reason']}"] += 1
        limited = self._world.condition("Limited", "va", VICTIM)
        if limited is not None and limited["status"] != "False":
            self.faults[f"the victim is limited: {limited['reason']}"] += 1

    async def look_outside(self) -> None:
        """Read probes and metrics over HTTP until cancelled, as kubelet and Prometheus do."""
        timeout = aiohttp.ClientTimeout(total=_PROBE_SECONDS)
        connector = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            while True:
                await self._look_outside(session)
                await asyncio.sleep(_LOOK_OUTSIDE_SECONDS)

    async def _look_outside(self, session: aiohttp.ClientSession) -> None:
        app = self._world.app
        if app is None or app.probe_port is None or app.metrics_port is None:
            return
        probes = f"http://127.0.0.1:{app.probe_port}"
        status, text = await self._get(session, f"{probes}/healthz")
        if status != 200:
            self.faults[f"/healthz: {status} {text[:200]}"] += 1
        status, text = await self._get(session, f"{probes}/readyz")
        self._ready = self._ready or status == 200
        if self._ready and status != 200:
            self.faults[f"/readyz: {status} {text[:200]}"] += 1
        allowed = self.allowed
        token, scheme = self._world.token, "https" if self._world.token else "http"
        status, text = await self._get(session, f"{scheme}://127.0.0.1:{app.metrics_port}/metrics", token)
        if status != 200:
            self.faults[f"/metrics: {status} {text[:200]}"] += 1
        elif allowed:
            self._read_page(text, allowed | self.allowed)

    def _read_page(self, text: str, allowed: set[int]) -> None:
        """Check a page that may have been written at any time between its request and now."""
        mine = [
            float(value)
            for labels, value in _SERIES.findall(text)
            if 'variant_name="va"' in labels and f'namespace="{VICTIM}"' in labels
        ]
        if len(mine) != 1:
            self.faults[f"{len(mine)} series of the victim"] += 1
        for value in mine:
            self._expect("the victim's series", value, allowed)
        at = max(map(float, _LAST_CYCLE.findall(text)), default=0.0)
        if at < self._last_cycle:
            self.faults["the time of the last cycle went back"] += 1
        self._last_cycle = at

    async def _get(self, session: aiohttp.ClientSession, url: str, token: str = "") -> tuple[int, str]:
        try:
            async with session.get(url, headers={"Authorization": f"Bearer {token}"} if token else {}) as response:
                return response.status, await response.text()
        except (TimeoutError, aiohttp.ClientError) as error:
            return 0, repr(error)

    def _expect(self, what: str, value: float | None, allowed: set[int] | None = None) -> None:
        allowed = self.allowed if allowed is None else allowed
        if value not in allowed:
            self.faults[f"{what} is {value}, expected {' or '.join(map(str, sorted(allowed)))}"] += 1

    def _number(self) -> int | None:
        return (self._world.status_of("va", VICTIM).get("desiredOptimizedAlloc") or {}).get("numReplicas")

    def end(self) -> None:
        """Stop the checks, because the controller will be stopped now."""
        self.allowed = set()

    async def turns(self, number: int) -> None:
        """Wait until ledger, status and conditions show this number; from then on any other number is a fault."""
        if self.allowed:
            self.allowed = {*self.allowed, number}
        await self._until(f"the victim gets {number}", lambda: self._settled(number))
        self.allowed = {number}

    def _settled(self, number: int) -> bool:
        decision = self._world.app.ledger.get(VariantKey(VICTIM, "va"))
        return (
            decision is not None
            and not decision.held
            and decision.desired == number == self._number()
            and all((self._world.condition(type_, "va", VICTIM) or {}).get("status") == "True" for type_ in _TRUE)
        )

    async def cycles(self, more: int) -> None:
        """Wait for this many more cycles, and check that the time of the last cycle moves on."""
        began, goal = time.time(), self._world.cycle_count() + more
        await self._until(f"{more} more cycles succeed", lambda: self._world.cycle_count() >= goal)
        if self._world.metric("wva_last_cycle_timestamp_seconds") < began:
            self.faults["the time of the last cycle stands still"] += 1

    async def _until(self, what: str, check: Callable[[], Any]) -> None:
        try:
            await until(check, seconds=PATIENCE_SECONDS)
        except AssertionError:
            self.faults[f"not true within {PATIENCE_SECONDS:g} s: {what}"] += 1
            raise

    async def wakes(self, gateway: FakePicker) -> None:
        """Let a request for the model at zero arrive; the controller must start the model."""
        gateway.waiting = 1
        wanted = lambda: self._world.api.store.get(DEPLOYMENTS, Key(VICTIM, SLEEPER))["spec"]["replicas"]  # noqa: E731 - read again and again
        await self._until("the victim's model at zero is started", lambda: wanted() == 1)

    async def hears(self, shows: Any) -> None:
        """Wait until everything in ``shows`` is true."""
        for one in shows if isinstance(shows, tuple) else (shows,):
            await self._until(f"the tenant is told: {one}", lambda one=one: one(self._world))


async def survive(world: AttackWorld, attack: Attack) -> None:
    """Run the controller under an attack; raise an AssertionError that lists everything that was wrong."""
    await repeat_if_late(world, attack, lambda one: _broken(one, attack))


async def repeat_if_late(
    world: AttackWorld, name: object, run: Callable[[AttackWorld], Awaitable[tuple[list[str], list[str]]]]
) -> None:
    """Run on this world, and on new ones while only a delay was too long; raise an AssertionError with all faults.

    ``run`` returns the faults, and separately what took too long.
    """
    broken, late = await run(world)
    for _ in range(TIMES - 1):
        if broken or not late:
            break
        async with world.anew().open() as another:
            broken, late = await run(another)
            world = another
    assert not broken + late, "\n".join([f"{name}:", *broken, *late])


async def _broken(world: AttackWorld, attack: Attack) -> tuple[list[str], list[str]]:
    """Return the faults, and separately what took too long."""
    for name, value in {**_QUICK, **attack.setting}.items():
        world.set(name, value)
    world.victim()
    if attack.bad:
        world.bad()
    watch, meter = _Watch(world), Meter()
    ended = ""
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(sleeping_model(world)) if attack.gateway else None
        await _do(attack.before, world)
        await world.scrape()
        await stack.enter_async_context(meter.running(watch.look))
        try:
            await _run(world, attack, watch, gateway)
        except Exception as error:  # noqa: BLE001 - the report contains it
            ended = f"{type(error).__name__}: {error}"
    broken = [f"{fault} ({count} looks)" for fault, count in watch.faults.items()]
    broken += [ended] if ended else []
    if meter.grown_bytes > attack.growth_mib * MIB:
        broken.append(f"memory grew by {meter.grown_bytes / MIB:.0f} MiB, at most {attack.growth_mib} are allowed")
    late = _too_long(f"a piece of work of {meter.what}", meter.piece) + _too_long("the event loop", meter.lag)
    return broken, late


def _too_long(what: str, seconds: float) -> list[str]:
    if seconds <= MAX_LAG_SECONDS:
        return []
    return [f"{what} took {seconds * 1000:.0f} ms, at most {MAX_LAG_SECONDS * 1000:.0f} ms are allowed"]


async def _run(world: AttackWorld, attack: Attack, watch: _Watch, gateway: FakePicker | None) -> None:
    async with AsyncExitStack() as stack:
        controller = world.controller(
            interval=attack.interval, **{"PROMETHEUS_BASE_URL": world.url, **attack.environment}
        )
        with as_controller():
            watch.task = await stack.enter_async_context(controller)
        outside = asyncio.create_task(watch.look_outside())
        stack.callback(outside.cancel)
        stack.callback(watch.end)
        await watch.turns(2)
        await _do(attack.during, world)
        await watch.cycles(CYCLES)
        if gateway is not None:
            await watch.wakes(gateway)
        await world.busy()
        await watch.turns(3)
        await watch.cycles(CYCLES)
        await watch.hears(attack.shows)


async def _do(step: Callable[[AttackWorld], Any], world: AttackWorld) -> None:
    done = step(world)
    if inspect.isawaitable(done):
        await done


@asynccontextmanager
async def sleeping_model(world: AttackWorld) -> AsyncIterator[FakePicker]:
    """Add a model at zero and its gateway to the victim's namespace; no request waits there at first."""
    gateway = FakePicker()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=f'{QUEUE}{{target_model_name="{SLEEPING_MODEL}"}} {gateway.waiting}\n')

    gateway.answer = answer
    async with gateway.serving():
        world.sleeper(gateway.port)
        yield gateway

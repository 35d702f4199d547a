"""The cost of a cycle with the token analyzer, compared with the percentage analyzer.

The benchmark measures queries, bytes, and the CPU time of collecting and deciding. It also measures collecting for the
demand analyzer. The work of Prometheus is not measured: its answers are made once, as large as real ones (with a quoted
label set for each series), and decoded in each cycle.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from prometheus_client import CollectorRegistry

from bench.paired import cpu_seconds, ratio
from wva.api.core import Pod
from wva.api.meta import KubeObject
from wva.api.variantautoscaling import VariantAutoscaling
from wva.collect.queries import CounterSignal, EngineSignal
from wva.collect.resolution import CollectStores
from wva.collect.snapshot import Collector
from wva.decide.measure import percentage, tokens
from wva.decide.trust import believe
from wva.instruments import Instruments
from wva.kube.cache import Store
from wva.model.memory import CapacityMemory, LearnedCapacity, Memory
from wva.model.metrics import EngineSignals, ReplicaMetrics, Sample, SampleState
from wva.model.policy import Policy
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey, Variant, VariantKey
from wva.prometheus.answers import InstantVector, decode_vector
from wva.slices import in_slices
from wva.targets import DEFAULT, DEPLOYMENTS, REPLICA_SETS, Deployment, ReplicaSet, TargetStores

T = TypeVar("T", bound=KubeObject)

NOW = 1_767_225_600.0
MODELS = 100
PODS = 3
NAMESPACE = "llm"


class Answers:
    """Answers queries from bodies made once, and counts what was sent and received."""

    def __init__(self) -> None:
        """Make the bodies."""
        pods = [(f"m{model}", f"d{model}-{pod}") for model in range(MODELS) for pod in range(PODS)]
        plain = [{"namespace": NAMESPACE, "model_name": model, "pod": pod} for model, pod in pods]
        self._bodies = {
            "kv_cache_usage": _body(_signals(plain, {"value": "0.5", "timestamp": str(NOW - 5)})),
            "queue_length": _body(_signals(plain, {"value": "1", "timestamp": str(NOW - 5)})),
            "engine_signals": _body(_engines(plain, dict.fromkeys(EngineSignal, "0.5"))),
            "engine_counters": _body(
                _engines(plain, dict.fromkeys(CounterSignal, "1234567.5") | {"kv_usage": "0.5", "time": str(NOW - 5)})
            ),
            "scheduler_queue": _body(
                ({"namespace": NAMESPACE, "target_model_name": f"m{model}", "signal": signal}, value)
                for model in range(MODELS)
                for signal, value in (("size", "4"), ("bytes", "4096"), ("timestamp", str(NOW - 5)))
            ),
        }
        self.queries = self.sent = self.received = 0

    async def query(self, promql: str, *, name: str, at: float) -> InstantVector:
        """Answer like PrometheusClient."""
        del at
        self.queries += 1
        self.sent += len(promql)
        self.received += len(self._bodies[name])
        return await in_slices(decode_vector(self._bodies[name]))


def _signals(pods: Iterable[dict[str, str]], values: Mapping[str, str]) -> Iterator[tuple[dict[str, str], str]]:
    """Yield one series for each pod and signal."""
    for labels in pods:
        yield from (({**labels, "signal": str(name)}, text) for name, text in values.items())


def _engines(pods: Iterable[dict[str, str]], values: Mapping[str, str]) -> Iterator[tuple[dict[str, str], str]]:
    """Yield the series of each pod that tell these signals."""
    size = {"engine": "0", "num_gpu_blocks": "8192", "block_size": "16", "signal": "cache_config"}
    for labels in pods:
        yield {"namespace": NAMESPACE, "pod": labels["pod"], **size}, "1"
        yield from _signals([labels], {name: text for name, text in values.items() if name != "cache_config"})


def _body(rows: Iterable[tuple[dict[str, str], str]]) -> bytes:
    result = [{"metric": labels, "value": [NOW, value]} for labels, value in rows]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


class _Cache(NamedTuple):
    """The cache of a kind that can be read."""

    store: Store[Any]
    absent: str | None = None


def _stores() -> CollectStores:
    watched = {resource.name: _Cache(Store()) for resource in DEFAULT.read}
    stores = CollectStores(Store(), TargetStores((DEFAULT,), watched, Store()))
    stores.add_indexes()
    for model in range(MODELS):
        name = f"d{model}"
        template = {"spec": {"containers": [{"name": "vllm", "args": ["--max-num-seqs=256", "--model", "m"]}]}}
        spec = {"replicas": PODS, "template": template}
        status = {"replicas": PODS, "readyReplicas": PODS}
        target = {"kind": "Deployment", "name": name, "apiVersion": "apps/v1"}
        _put(stores.targets.store(DEPLOYMENTS), Deployment, name, "", spec=spec, status=status)
        _put(stores.targets.store(REPLICA_SETS), ReplicaSet, f"{name}-rs", name)
        va = {"scaleTargetRef": target, "modelID": f"m{model}"}
        _put(stores.variant_autoscalings, VariantAutoscaling, name, "", spec=va)
        for pod in range(PODS):
            conditions = [{"type": "Ready", "status": "True"}]
            _put(stores.targets.pods, Pod, f"{name}-{pod}", f"{name}-rs", status={"conditions": conditions})
    return stores


def _put(store: Store[T], type_: type[T], name: str, owner: str, **wire: object) -> None:
    metadata: dict[str, object] = {"name": name, "namespace": NAMESPACE, "uid": name}
    if owner:
        metadata["ownerReferences"] = [{"kind": "Owner", "name": owner, "uid": owner, "controller": True}]
    store.upsert(msgspec.convert({"metadata": metadata, **wire}, type_))


def _collecting(*, engines: bool = False, counters: bool = False) -> tuple[Answers, Collector]:
    answers = Answers()
    instruments = Instruments(CollectorRegistry())
    return answers, Collector(
        _stores(),
        prometheus=answers,
        instruments=instruments,
        engines_of=lambda _: engines,
        counters_of=lambda _: counters,
    )


async def _cycle(collector: Collector) -> None:
    """Collect and return nothing: the runner would make a text of a returned Snapshot."""
    await collector.collect(NOW)


def test_collecting_for_the_token_analyzer() -> None:
    """The token analyzer needs two more queries. CPU stays within 15 times that of the two signals."""
    without, plain = _collecting()
    with_, tokens = _collecting(engines=True)
    with asyncio.Runner() as runner:
        for answers, collector in ((without, plain), (with_, tokens)):
            runner.run(collector.collect(NOW))
            print(f"\n{answers.queries} queries, {answers.sent} bytes sent, {answers.received} bytes received", end="")
        assert (without.queries, with_.queries) == (4, 6)
        seconds = [
            min(cpu_seconds(lambda one=one: runner.run(_cycle(one))) for _ in range(5)) for one in (plain, tokens)
        ]
        factor = ratio(lambda: runner.run(_cycle(tokens)), lambda: runner.run(_cycle(plain)))
    print(f"\n{MODELS * PODS} pods: {seconds[0] * 1e3:.1f} ms, with engines {seconds[1] * 1e3:.1f} ms, x{factor:.1f}")
    assert factor < 15


def test_collecting_for_the_demand_analyzer() -> None:
    """The demand analyzer needs two more queries.

    Collecting costs less than twice as much as for the token analyzer.
    """
    found = [_collecting(), _collecting(engines=True), _collecting(counters=True)]
    with asyncio.Runner() as runner:
        for answers, collector in found:
            replicas = runner.run(collector.collect(NOW)).replicas
            print(f"\n{answers.queries} queries, {answers.sent} bytes sent, {answers.received} bytes received", end="")
        assert [answers.queries for answers, _ in found] == [4, 6, 6]
        assert all(replica.counters is not None for replica in replicas)
        plain, tokens, demand = (
            min(cpu_seconds(lambda one=one: runner.run(_cycle(one))) for _ in range(5)) for _, one in found
        )
        factor = ratio(lambda: runner.run(_cycle(found[2][1])), lambda: runner.run(_cycle(found[1][1])))
    print(f"\n{MODELS * PODS} pods: {plain * 1e3:.1f} ms, tokens {tokens * 1e3:.1f} ms, demand {demand * 1e3:.1f} ms")
    print(f"demand against tokens: x{factor:.2f}")
    assert factor < 2


def _fresh(value: float) -> Sample:
    return Sample(SampleState.FRESH, value, NOW - 5)


def test_deciding_in_tokens() -> None:
    """The analysis of a model costs a few times that of the percentage analyzer."""
    engine = EngineSignals(
        kv_capacity_tokens=_fresh(131_072),
        kv_usage=_fresh(0.5),
        waiting=_fresh(1),
        input_tokens=_fresh(512),
        output_tokens=_fresh(200),
        prefix_hit_rate=_fresh(0.1),
    )
    model = ModelKey(NAMESPACE, "m")
    variants, replicas = [], []
    for name in ("a100", "h100"):
        key = VariantKey(NAMESPACE, name)
        variants.append(Variant(key, model, name, name, 20.0, PODS, current_replicas=PODS, ready_replicas=PODS))
        replicas += [ReplicaMetrics(f"{name}-{pod}", key, _fresh(0.5), _fresh(6), engine) for pod in range(PODS)]
    memory = Memory(capacity=CapacityMemory((LearnedCapacity(model, NOW - 3600),)))
    models, _ = believe(Snapshot.of(variants, replicas), memory, Policy(), NOW)

    def in_tokens() -> None:
        for _ in range(MODELS):
            tokens.measure(models, memory, Policy(), NOW, {})

    def in_percent() -> None:
        for _ in range(MODELS):
            percentage.measure(models, memory, Policy(), NOW, {})

    factor = ratio(in_tokens, in_percent)
    milliseconds = min(cpu_seconds(in_tokens) for _ in range(5)) * 1e3
    print(f"\n{MODELS} models with 2 variants of {PODS} replicas: {milliseconds:.1f} ms, x{factor:.1f}")
    assert factor < 30

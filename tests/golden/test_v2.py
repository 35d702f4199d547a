"""The formulas of the token analyzer give the numbers of v0.5.1 on every recorded case.

``Original`` combines them as v0.5.1 did: it truncates thresholds of the queue, takes one observation per replica,
charges waiting requests by their prompts only, keeps one history for all namespaces and GPU counts, and reads unknown
values as 0. WVA's analyzer differs from this (``tests/decide/test_tokens_departures.py``).
"""

from __future__ import annotations

import pytest

from tests.golden.vectors import Case, near, parameters, tally, tally_of, worked_examples
from wva.decide.measure import tokens
from wva.decide.measure.tokens import MeanRequest, left_over, mean, missing
from wva.model.memory import CapacityRecord, EngineKind, K2History, LearnedFrom
from wva.model.policy import SaturationPolicy
from wva.model.records import replace
from wva.model.variant import VariantKey
from wva.model.vllm_parameters import EngineCommand, VllmParameters, read_parameters

NAME = "v2"
StoreKey = tuple[str, str, str]


class Original:
    """The analyzer of v0.5.1: its store, its history, and the order of its steps."""

    def __init__(self) -> None:
        """Start with an empty store."""
        self.store: dict[StoreKey, CapacityRecord] = {}
        self.sizes: dict[StoreKey, tuple[int, int]] = {}
        self.history: dict[str, K2History] = {}

    def load(self, step: Case) -> None:
        """Store the parameters of a Deployment, unless a live replica of the variant is stored."""
        key = (step["namespace"], step["model"], step["variant"])
        if key in self.store and self.store[key].learned_from is LearnedFrom.LIVE:
            return
        found = read_parameters(commands(step["containers"]))
        self.sizes[key] = (found.num_gpu_blocks_override, found.block_size) if found.override_tokens else (0, 0)
        self.store[key] = CapacityRecord(
            VariantKey(step["namespace"], step["variant"]),
            step["accelerator"],
            step["gpu_count"],
            found.override_tokens,
            found.batched_tokens,
            LearnedFrom.DEPLOYMENT,
            0.0,
            found,
        )

    def analyze(self, step: Case) -> Case:
        """Analyze a model and return the result with the names of the recording."""
        config = step["config"]
        policy = SaturationPolicy(**{**config, "queue_length_threshold": int(config["queue_length_threshold"])})
        rows, states = step.get("replicas") or [], step.get("states") or []
        gpus = {state["variant"]: state["gpus_per_replica"] for state in states}
        usable: dict[str, list[tuple[int, float]]] = {}
        for row in rows:
            if row["total_kv_capacity_tokens"] > 0:
                found = self.replica(step, row, policy, gpus.get(row["variant"], 0))
                usable.setdefault(row["variant"], []).append(found)
        request = means(rows)
        variants = [self.variant(step, state, usable.get(state["variant"]), request, policy) for state in states]
        queued = step.get("scheduler_queue") or {"queue_size": 0, "queue_bytes": 0}
        demand = sum(variant["total_demand"] for variant in variants)
        demand += request.charge(queued["queue_size"], size_bytes=queued["queue_bytes"])
        supply = sum(variant["total_capacity"] for variant in variants)
        anticipated = sum(
            (variant["replica_count"] + variant["pending_replicas"]) * variant["per_replica_capacity"]
            for variant in variants
        )
        required = missing(demand=demand, anticipated=anticipated, policy=policy)
        spare = left_over(demand=demand, supply=supply, policy=policy)
        return {
            "variants": variants,
            "total_supply": supply,
            "total_demand": demand,
            "utilization": demand / supply if supply else 0,
            "required_capacity": required,
            "spare_capacity": spare,
        }

    def replica(self, step: Case, row: Case, policy: SaturationPolicy, gpus: int) -> tuple[int, float]:
        """Return capacity and demand of a replica, and store its capacity."""
        key = (step["namespace"], step["model"], row["variant"])
        bucket = tokens.bucket_of(row["avg_output_tokens"])
        history_key = f"{step['model']}|{row['accelerator']}|{bucket}"
        before = self.store.get(key)
        request = MeanRequest(row["avg_input_tokens"], row["avg_output_tokens"])
        observed = tokens.compute_bound(row["queue"], row["tokens_in_use"], policy)
        if observed > 0:
            past = self.history.get(history_key, K2History(EngineKind("", 0, 0, bucket), (), 0.0))
            self.history[history_key] = past.append(observed, now=0.0)
        capacity, _ = tokens.effective(
            tokens.memory_bound(row["total_kv_capacity_tokens"], policy),
            observed=observed,
            history=self.history[history_key].mean if history_key in self.history else 0,
            derived=tokens.derived_capacity(before.parameters if before else None, request),
        )
        self.sizes[key] = (row["num_gpu_blocks"], row["block_size"])
        self.store[key] = CapacityRecord(
            VariantKey(step["namespace"], row["variant"]),
            row["accelerator"],
            gpus,
            row["total_kv_capacity_tokens"],
            capacity,
            LearnedFrom.LIVE,
            0.0,
            before.parameters if before else None,
        )
        prompts = MeanRequest(int(row["avg_input_tokens"]) if row["avg_input_tokens"] > 0 else 0)
        return capacity, row["tokens_in_use"] + prompts.charge(row["queue"])

    def variant(
        self,
        step: Case,
        state: Case,
        usable: list[tuple[int, float]] | None,
        request: MeanRequest,
        policy: SaturationPolicy,
    ) -> Case:
        """Return a variant's row of the result."""
        first = next((row for row in step.get("replicas") or [] if row["variant"] == state["variant"]), None)
        record = self.store.get((step["namespace"], step["model"], state["variant"]))
        if usable:
            capacity = tokens.median([replica for replica, _ in usable])
        else:
            sibling = self.compatible(step, state, record)
            capacity = tokens.idle_capacity(record, request=request, policy=policy, sibling=sibling).tokens
        ready = max(0, state["current"] - state["pending"])
        demand = sum(used for _, used in usable or [])
        total = ready * capacity
        return {
            "variant": state["variant"],
            "accelerator": first["accelerator"] if first else "",
            "cost": first["cost"] if first else 0,
            "replica_count": ready,
            "pending_replicas": state["pending"],
            "per_replica_capacity": capacity,
            "total_capacity": total,
            "total_demand": demand,
            "utilization": demand / total if total else 0,
        }

    def compatible(self, step: Case, state: Case, record: CapacityRecord | None) -> CapacityRecord | None:
        """Return a compatible record of the same model, accelerator and GPU count; a live one first."""
        if record is None or record.parameters is None:
            return None
        wanted = unlimited(record.parameters)
        found = [
            other
            for (_, model, _), other in sorted(self.store.items())
            if model == step["model"]
            and (other.accelerator, other.gpus_per_replica) == (record.accelerator, state["gpus_per_replica"])
            and other.parameters is not None
            and unlimited(other.parameters).compatible(wanted)
            and (other.effective > 0 or other.kv_tokens > 0)
        ]
        found.sort(key=lambda other: other.learned_from is not LearnedFrom.LIVE)
        return found[0] if found else None

    def stored(self) -> Case:
        """Return the store with the names of the recording."""
        return {
            "|".join(key): {
                "accelerator": record.accelerator,
                "gpu_count": record.gpus_per_replica,
                "num_gpu_blocks": self.sizes[key][0],
                "block_size": self.sizes[key][1],
                "total_kv_capacity_tokens": record.kv_tokens,
                "effective_capacity": record.effective,
                "vllm_params": as_recorded(record.parameters),
                "learned_from": record.learned_from.value,
            }
            for key, record in self.store.items()
        }


def commands(containers: list[Case]) -> list[EngineCommand]:
    """Return the recorded containers as WVA's reader of parameters takes them."""
    return [
        EngineCommand(
            (*(row.get("command") or ()), *(row.get("args") or ())), (row.get("env") or {}).get("VLLM_USE_V1")
        )
        for row in containers
    ]


def unlimited(found: VllmParameters) -> VllmParameters:
    """Return the parameters without the number of sequences, which v0.5.1 did not compare."""
    return replace(found, max_num_seqs=0)


def means(rows: list[Case]) -> MeanRequest:
    """Return the plain means over the replicas that have finished any request."""
    busy = [row for row in rows if row["avg_input_tokens"] > 0 or row["avg_output_tokens"] > 0]
    keys = ("avg_input_tokens", "avg_output_tokens", "prefix_cache_hit_rate")
    return MeanRequest(*(mean([row[key] for row in busy]) for key in keys))


def as_recorded(found: VllmParameters | None) -> Case | None:
    """Return parameters with the names of the recording."""
    if found is None:
        return None
    return {
        "gpu_memory_utilization": near(found.gpu_memory_utilization),
        "block_size": found.block_size,
        "kv_cache_dtype": found.kv_cache_dtype,
        "tensor_parallel_size": found.tensor_parallel_size,
        "num_gpu_blocks_override": found.num_gpu_blocks_override,
        "max_num_batched_tokens": found.max_num_batched_tokens,
        "max_num_seqs": found.max_num_seqs,
        "max_model_len": found.max_model_len,
        "enforce_eager": found.enforce_eager,
        "is_v1_engine": found.v1_engine,
        "chunked_prefill_enabled": found.chunked_prefill,
        "effective_max_batched_tokens": found.batched_tokens,
    }


def from_recorded(row: Case) -> VllmParameters:
    """Return recorded parameters as WVA's value."""
    row = dict(row)
    row.pop("effective_max_batched_tokens")
    return VllmParameters(v1_engine=row.pop("is_v1_engine"), chunked_prefill=row.pop("chunked_prefill_enabled"), **row)


def nearly(value: object) -> object:
    """Replace every float in an expected value by a matcher."""
    if isinstance(value, dict):
        return {key: nearly(item) for key, item in value.items()}
    if isinstance(value, list):
        return [nearly(item) for item in value]
    return near(value) if isinstance(value, float) else value


@pytest.mark.long_story
@pytest.mark.parametrize("case", parameters(NAME))
def test_recorded_case(case):
    """Results, store and history after every step are those of the original."""
    tally(NAME).run += 1
    original = Original()
    for step in case["steps"]:
        if step["op"] == "load_deployment":
            original.load(step)
        else:
            assert original.analyze(step) == nearly(step["expected"])
        assert original.stored() == nearly(step.get("store_after") or {})
        if "history_after" in step:
            history = {key: list(past.values) for key, past in original.history.items()}
            assert history == nearly(step["history_after"])


@pytest.mark.parametrize("case", worked_examples("saturation_v2"), ids=lambda case: case["id"])
def test_worked_example(case):
    """The results of the example's analyses are as recorded."""
    tally_of("engine_vectors.json.gz saturation_v2").run += 1
    original, found = Original(), []
    for step in case["steps"]:
        if step["op"] == "load_deployment":
            original.load(step)
        else:
            found.append(original.analyze(step))
    assert found == nearly(case["expected"])


@pytest.mark.parametrize("case", parameters(NAME, section="estimate_capacity"))
def test_derived_capacity(case):
    """The capacity that follows from an engine's arguments is as recorded."""
    tally(NAME, "estimate_capacity").run += 1
    given = VllmParameters(
        max_num_batched_tokens=case["effective_max_batched_tokens"],
        max_num_seqs=case["max_num_seqs"],
        chunked_prefill=False,
        v1_engine=False,
    )
    if case["effective_max_batched_tokens"] <= 0:
        # In WVA an engine without a budget gets a default; the original's function accepted any number.
        assert case["expected"] == 0
        return
    request = MeanRequest(case["avg_input"], case["avg_output"])
    assert tokens.derived_capacity(given, request) == case["expected"]


@pytest.mark.parametrize("case", parameters(NAME, section="median"))
def test_median(case):
    """The median is as recorded; that of an even number of values is rounded down."""
    tally(NAME, "median").run += 1
    assert tokens.median(case["values"] or []) == case["expected"]


@pytest.mark.parametrize("case", parameters(NAME, section="output_bucket"))
def test_output_bucket(case):
    """The bucket of an output length is as recorded."""
    tally(NAME, "output_bucket").run += 1
    assert tokens.bucket_of(case["avg_output"]).value == case["expected"]


@pytest.mark.parametrize("case", parameters(NAME, section="parse_vllm_args"))
def test_parse_vllm_args(case):
    """WVA reads the engine's parameters as the original does."""
    tally(NAME, "parse_vllm_args").run += 1
    assert as_recorded(read_parameters(commands(case["containers"] or []))) == case["expected"]


@pytest.mark.parametrize("case", parameters(NAME, section="params_compatible"))
def test_params_compatible(case):
    """Engines are compatible as in the original, which did not compare the number of sequences."""
    tally(NAME, "params_compatible").run += 1
    one, other = (None if case[side] is None else from_recorded(case[side]) for side in ("a", "b"))
    found = one is not None and other is not None and unlimited(one).compatible(unlimited(other))
    assert found == case["expected"]

"""The metrics page, as the parser of prometheus_client reads it."""

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from wva.sim.fleet.engine import DrivenEngine
from wva.sim.fleet.metrics import EngineView, gateway_lines, render
from wva.sim.fleet.parameters import PRESETS
from wva.sim.fleet.replica import PodKey, PoolKey
from wva.sim.fleet.requests import UserRequest

TYPES = {
    "vllm:num_requests_running": "gauge",
    "vllm:num_requests_waiting": "gauge",
    "vllm:kv_cache_usage_perc": "gauge",
    "vllm:cache_config_info": "gauge",
    "vllm:prefix_cache_queries": "counter",
    "vllm:prefix_cache_hits": "counter",
    "vllm:num_preemptions": "counter",
    "vllm:prompt_tokens": "counter",
    "vllm:generation_tokens": "counter",
    "vllm:request_success": "counter",
    "vllm:request_prompt_tokens": "histogram",
    "vllm:request_generation_tokens": "histogram",
    "vllm:time_to_first_token_seconds": "histogram",
    "vllm:inter_token_latency_seconds": "histogram",
    "vllm:time_per_output_token_seconds": "histogram",
    "vllm:e2e_request_latency_seconds": "histogram",
    "vllm:request_queue_time_seconds": "histogram",
    "vllm:request_prefill_time_seconds": "histogram",
    "vllm:request_decode_time_seconds": "histogram",
}


def view(pod="p-1", *, engine=0, model="org/model", requests=0, prefix=0, at=0.0, **more):
    """Return the view of an engine that got some requests at time 0."""
    simulated = DrivenEngine(PRESETS["H100"], groups=1)
    for number in range(requests):
        simulated.submit(UserRequest(number, 0.0, 512, 100, group=0, prefix_tokens=prefix), at_seconds=0.0)
    simulated.advance(at)
    return EngineView(
        model=PoolKey("ns", model),
        pod=PodKey("ns", pod),
        engine=engine,
        parameters=simulated.parameters,
        sample=simulated.sample(),
        **more,
    )


def samples(text, name):
    """Return labels and values of one series."""
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    ]


def test_families_and_types():
    """The page has every family once, with its type and a help text."""
    families = list(text_string_to_metric_families(render([view()], pod_labels=False)))
    assert {family.name: family.type for family in families} == TYPES
    assert len(families) == len(TYPES)
    assert all(family.documentation for family in families)


def test_gauges_show_the_engine():
    """Running, waiting and cache usage have the labels model_name and engine."""
    text = render([view(requests=300, at=6.0)], pod_labels=False)
    labels = {"engine": "0", "model_name": "org/model"}
    (running,) = samples(text, "vllm:num_requests_running")
    (waiting,) = samples(text, "vllm:num_requests_waiting")
    (usage,) = samples(text, "vllm:kv_cache_usage_perc")
    assert running[0] == waiting[0] == usage[0] == labels
    assert running[1] + waiting[1] == 300
    assert waiting[1] > 5
    assert 0.9 < usage[1] <= 1


def test_cache_config_names_no_model():
    """The series has labels for the blocks and no model name, so that readers must join it by pod."""
    ((labels, value),) = samples(render([view()], pod_labels=True), "vllm:cache_config_info")
    assert value == 1
    assert (labels["num_gpu_blocks"], labels["block_size"], labels["engine"]) == ("8192", "16", "0")
    assert (labels["namespace"], labels["pod"]) == ("ns", "p-1")
    assert "model_name" not in labels


def test_counters_end_in_total_and_count():
    """After four requests the counters have all tokens, and three of the requests hit the cache."""
    text = render([view(requests=4, prefix=128, at=100.0)], pod_labels=False)
    assert samples(text, "vllm:prompt_tokens_total")[0][1] == 2048
    assert samples(text, "vllm:generation_tokens_total")[0][1] == 400
    assert samples(text, "vllm:prefix_cache_queries_total")[0][1] == 2048
    assert samples(text, "vllm:prefix_cache_hits_total")[0][1] == 3 * 128
    assert samples(text, "vllm:num_preemptions_total")[0][1] == 0
    reasons = {labels["finished_reason"]: value for labels, value in samples(text, "vllm:request_success_total")}
    assert reasons == {"stop": 4, "length": 0, "abort": 0}
    assert "vllm:prompt_tokens_total{" in text


@pytest.mark.parametrize("name", [name for name, kind in TYPES.items() if kind == "histogram"])
def test_histograms_are_cumulative_and_end_in_infinity(name):
    """Buckets never fall, the last one equals the count, and the histogram has a sum."""
    text = render([view(requests=4, at=100.0)], pod_labels=False)
    buckets = [(labels["le"], value) for labels, value in samples(text, f"{name}_bucket")]
    values = [value for _, value in buckets]
    assert values == sorted(values)
    assert buckets[-1][0] == "+Inf"
    per_token = name in ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
    assert samples(text, f"{name}_count")[0][1] == values[-1] == (396 if per_token else 4)
    assert samples(text, f"{name}_sum")[0][1] > 0 or "queue" in name


def test_series_of_many_pods_are_grouped_by_family():
    """Each family has one header. Series differ by pod, and data-parallel engines by engine."""
    text = render([view("p-1"), view("p-2"), view("p-2", engine=1)], pod_labels=True)
    assert text.count("# TYPE vllm:kv_cache_usage_perc ") == 1
    found = [
        (labels["namespace"], labels["pod"], labels["engine"])
        for labels, _ in samples(text, "vllm:kv_cache_usage_perc")
    ]
    assert found == [("ns", "p-1", "0"), ("ns", "p-2", "0"), ("ns", "p-2", "1")]


def test_broken_gauges_are_not_numbers():
    """With broken gauges, gauges are NaN and counters stay."""
    text = render([view(broken_gauges=True)], pod_labels=False)
    for name in ("vllm:kv_cache_usage_perc", "vllm:num_requests_running", "vllm:num_requests_waiting"):
        assert math.isnan(samples(text, name)[0][1])
    assert samples(text, "vllm:prompt_tokens_total")[0][1] == 0


def test_explicit_timestamps_stand_behind_each_sample():
    """With a timestamp every sample has it."""
    text = render([view(timestamp_milliseconds=1_700_000_000_123)], pod_labels=False)
    stamps = {sample.timestamp for family in text_string_to_metric_families(text) for sample in family.samples}
    assert stamps == {1_700_000_000.123}


def test_label_values_are_escaped():
    """Quotes, backslashes and line ends of a model name survive a round trip."""
    name = 'we"ird\\name\nof model'
    ((labels, _),) = samples(render([view(model=name)], pod_labels=False), "vllm:num_requests_running")
    assert labels["model_name"] == name


def test_no_engine_gives_headers_only():
    """An empty fleet still serves a valid page."""
    assert all(not family.samples for family in text_string_to_metric_families(render([], pod_labels=True)))


def test_gateway_page():
    """Flow control shows requests and bytes per model. Only a page of several namespaces has their names."""
    rows = [(PoolKey("ns", "m"), 3, 6000)]
    own = gateway_lines(rows, pool="pool", namespaces=False)
    labels = {
        "fairness_id": "default-flow",
        "inference_pool": "pool",
        "model_name": "m",
        "priority": "0",
        "target_model_name": "m",
    }
    assert samples(own, "inference_extension_flow_control_queue_size") == [(labels, 3)]
    assert samples(own, "inference_extension_flow_control_queue_bytes") == [(labels, 6000)]
    shared = gateway_lines(rows, pool="pool", namespaces=True)
    assert samples(shared, "inference_extension_flow_control_queue_size") == [(labels | {"namespace": "ns"}, 3)]

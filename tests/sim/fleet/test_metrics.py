"""The metrics page, as the parser of prometheus_client reads it."""

import math
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.golden.pages import vllm_page, vllm_pages
from wva.sim.fleet.engine import DrivenEngine
from wva.sim.fleet.families import FAMILIES
from wva.sim.fleet.metrics import EngineView, gateway_lines, render
from wva.sim.fleet.parameters import PRESETS
from wva.sim.fleet.replica import PodKey, PoolKey
from wva.sim.fleet.requests import UserRequest

PHASES = ("inference", "prefill", "decode")
HISTOGRAMS = [family.name for family in FAMILIES if family.kind == "histogram"]


def view(pod="p-1", *, engine=0, model="org/model", requests=0, prefix=0, at=0.0, parameters=PRESETS["H100"], **more):
    """Return the view of an engine that got some requests at time 0."""
    simulated = DrivenEngine(parameters, groups=1)
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


def shape(page, beginning):
    """Return of each family its type and its samples' names and labels, with the values of labels that are no names."""
    families = list(text_string_to_metric_families(page))
    kept = [family for family in families if family.name.startswith(beginning)]
    assert len({family.name for family in kept}) == len(kept)
    assert all(family.documentation for family in kept)
    return {
        family.name: (
            family.type,
            {
                (sample.name, *((label, _shown(label, value)) for label, value in sorted(sample.labels.items())))
                for sample in family.samples
            },
        )
        for family in kept
    }


def _shown(label, value):
    """Return the value of a label as far as it is the same for all engines."""
    return value if label in ("le", "reason", "finished_reason", "source", "sleep_state") else ""


@pytest.mark.parametrize("name", vllm_pages())
def test_the_page_is_that_of_vllm(name):
    """Families, types, label names, reasons and bounds are those that a real vLLM 0.32.0 shows, no more and no less."""
    parameters = replace(PRESETS["H100"], max_model_len=1000)
    ours = render([view(parameters=parameters, started_seconds=1.7e9)], pod_labels=False)
    assert shape(ours, "vllm:") == shape(vllm_page(name), "vllm:")


def test_without_a_start_nothing_is_said_of_it():
    """The ``_created`` series are left out, as vLLM does with PROMETHEUS_DISABLE_CREATED_SERIES; the rest stays."""
    with_them = shape(render([view(started_seconds=1.7e9)], pod_labels=False), "vllm:")
    without = shape(render([view()], pod_labels=False), "vllm:")
    assert without == {name: found for name, found in with_them.items() if not name.endswith("_created")}
    assert len(without) == 39


def test_the_size_of_the_cache_is_told():
    """The settings give the tokens that the cache holds, and how many of the longest sequences those are."""
    ((labels, _),) = samples(render([view()], pod_labels=False), "vllm:cache_config_info")
    assert labels["kv_cache_size_tokens"] == str(8192 * 16)
    assert labels["kv_cache_max_concurrency"] == "16.0"


def test_refusals_belong_to_the_server():
    """They have no engine label, so that a pod with two engines shows them once."""
    text = render([view("p-1"), view("p-1", engine=1)], pod_labels=True)
    found = [(labels["reason"], "engine" in labels) for labels, _ in samples(text, "vllm:admission_rejections_total")]
    assert found == [("max_num_queued_reqs", False), ("max_num_queued_tokens", False)]


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
    assert reasons == {"stop": 4, "length": 0, "abort": 0, "error": 0, "repetition": 0}
    assert "vllm:prompt_tokens_total{" in text


def test_what_belongs_together_adds_up():
    """Sources add up to all prompt tokens, steps to all tokens, and computed tokens are those that no cache held."""
    text = render([view(requests=4, prefix=128, at=100.0)], pod_labels=False)
    sources = {labels["source"]: value for labels, value in samples(text, "vllm:prompt_tokens_by_source_total")}
    assert sources == {"local_compute": 2048 - 384, "local_cache_hit": 384, "external_kv_transfer": 0}
    assert samples(text, "vllm:prompt_tokens_cached_total")[0][1] == 384
    tiers = {labels["source"]: value for labels, value in samples(text, "vllm:prompt_tokens_cached_by_source_total")}
    assert (tiers["device"], sum(tiers.values())) == (384, 384)
    assert samples(text, "vllm:iteration_tokens_total_sum")[0][1] == 2048 + 400
    assert samples(text, "vllm:request_prefill_kv_computed_tokens_sum")[0][1] == 2048 - 384
    assert samples(text, "vllm:request_params_n_sum")[0][1] == 4
    assert samples(text, "vllm:request_params_max_tokens_sum")[0][1] == 4 * (8192 - 512)
    spent = {name: samples(text, f"vllm:request_{name}_time_seconds_sum")[0][1] for name in PHASES}
    assert spent["inference"] == pytest.approx(spent["prefill"] + spent["decode"])
    per_token = samples(text, "vllm:request_time_per_output_token_seconds_sum")[0][1]
    assert per_token == pytest.approx(spent["decode"] / 99)


def test_waiting_requests_wait_for_capacity():
    """The reasons add up to what waits."""
    text = render([view(requests=300, at=6.0)], pod_labels=False)
    waiting = samples(text, "vllm:num_requests_waiting")[0][1]
    reasons = {labels["reason"]: value for labels, value in samples(text, "vllm:num_requests_waiting_by_reason")}
    assert reasons == {"capacity": waiting, "deferred": 0}
    assert waiting > 5


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_histograms_are_cumulative_and_end_in_infinity(name):
    """Buckets never fall, the last one equals the count, and the histogram has a sum."""
    text = render([view(requests=4, at=100.0)], pod_labels=False)
    buckets = [(labels["le"], value) for labels, value in samples(text, f"{name}_bucket")]
    values = [value for _, value in buckets]
    assert values == sorted(values)
    assert buckets[-1][0] == "+Inf"
    other = {"vllm:inter_token_latency_seconds": 396, "vllm:iteration_tokens_total": 101}
    assert samples(text, f"{name}_count")[0][1] == values[-1] == other.get(name, 4)
    assert samples(text, f"{name}_sum")[0][1] > 0 or "queue" in name or "preemptions" in name


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
    families = text_string_to_metric_families(text)
    stamps = {sample.timestamp for family in families for sample in family.samples}
    assert stamps == {1_700_000_000.123}


def test_label_values_are_escaped():
    """Quotes, backslashes, line ends and what means something in a template survive a round trip."""
    name = 'we"ird\\name\nof model, 5 %s {target} {0}'
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

"""``wva config`` shows the value of each setting and its source."""

from __future__ import annotations

import json

import pytest

from tests.config.samples import FIELDS
from wva.api.crd import definition
from wva.sim.apiserver import EmbeddedApiServer, ServerOptions, StoreOptions, kind_from_definition

SYSTEM = "workload-variant-autoscaler-system"
MAIN = "wva-variantautoscaling-config"
URL = {"PROMETHEUS_BASE_URL": "https://prometheus:9090"}
SECRET = "hunter2"


@pytest.fixture
async def api():
    """Return an embedded API server."""
    options = ServerOptions(store=StoreOptions(namespaces=("ns", SYSTEM)))
    async with EmbeddedApiServer([kind_from_definition(definition())], options=options) as server:
        yield server


@pytest.fixture
def config(call, api, tmp_path):
    """Return a function that runs the command against the embedded API server."""
    path = str(api.kubeconfig(tmp_path / "kubeconfig"))
    return lambda *words, **more: call("config", *words, KUBECONFIG=path, **more)


def store(api, **data):
    """Create the main ConfigMap."""
    api.store.create("configmaps", {"metadata": {"name": MAIN, "namespace": SYSTEM}, "data": data})


def entries(outcome):
    """Return the settings of a JSON answer by name."""
    return {entry["name"]: entry for entry in json.loads(outcome.out)["settings"]}


async def test_each_source_is_told(config, api):
    """Each setting has its source (flag, environment, ConfigMap, default) and when a change applies."""
    store(api, **URL, GLOBAL_OPT_INTERVAL="15s", V="3")
    outcome = await config("--output=json", "--leader-elect", "-v=4", WATCH_NAMESPACE="llm")
    assert outcome.status == 0
    found = entries(outcome)
    assert len(found) == len(FIELDS)
    told = {name: (entry["value"], entry["source"], entry["applies"]) for name, entry in found.items()}
    assert told["LEADER_ELECT"] == ("true", "flag", "start")
    assert told["V"] == ("4", "flag", "live")
    assert told["WATCH_NAMESPACE"] == ("llm", "environment", "start")
    assert told["GLOBAL_OPT_INTERVAL"] == ("15s", "configmap", "live")
    assert told["PROMETHEUS_BASE_URL"] == ("https://prometheus:9090", "configmap", "start")
    assert told["METRICS_SECURE"] == ("true", "default", "start")
    assert json.loads(outcome.out)["configMap"] == {"name": f"{SYSTEM}/{MAIN}", "state": "read"}


async def test_the_table_has_a_line_for_each_setting(config):
    """The table has the same words as the JSON, and says that there is no ConfigMap."""
    outcome = await config(**URL, METRICS_ADDR=":8443")
    assert outcome.status == 0
    lines = outcome.out.splitlines()
    (line,) = [line for line in lines if line.startswith("METRICS_BIND_ADDRESS ")]
    assert line.split() == ["METRICS_BIND_ADDRESS", ":8443", "environment", "at", "start"]
    assert lines[-1] == f"main ConfigMap {SYSTEM}/{MAIN}: there is none"
    assert len(lines) == 1 + len(FIELDS) + 2


async def test_secrets_are_masked(config, api):
    """Secrets from the environment and from the ConfigMap are masked, in the table and in JSON."""
    store(api, **URL, EPP_METRIC_READER_BEARER_TOKEN=SECRET)
    for words in ((), ("-o", "json")):
        outcome = await config(*words, PROMETHEUS_BEARER_TOKEN=SECRET)
        assert SECRET not in outcome.out + outcome.err
        assert "***" in outcome.out


async def test_what_cannot_be_used_is_noted(config, api):
    """A note names each unusable value with the value in force, and each unknown key."""
    store(api, **URL, LEADER_ELECT="maybe", PROMETEUS_BASE_URL="https://x")
    outcome = await config("--output=json")
    notes = json.loads(outcome.out)["notes"]
    assert any("LEADER_ELECT='maybe' (configmap)" in note and "in force: false" in note for note in notes)
    assert "PROMETEUS_BASE_URL (configmap): no such setting" in notes


async def test_it_says_what_would_keep_the_controller_from_starting(config):
    """The status is 1, with one line for each problem; the settings are printed all the same."""
    outcome = await config("--output=json", POOL_GROUP="inference.example.com")
    assert outcome.status == 1
    assert len(outcome.lines) == 2
    assert entries(outcome)["POOL_GROUP"]["value"] == ""


async def test_without_a_cluster_it_shows_what_is_known(call, closed_cluster):
    """An unreachable cluster is not status 1, because the ConfigMap may have the missing settings."""
    answer = unknown(await call("config", "--output=json", KUBECONFIG=str(closed_cluster)))
    assert "cannot be reached" in answer["configMap"]["reason"]


async def test_without_permission_it_names_what_is_missing(call, cluster_without_permission):
    """The answer names the missing permission and shows the other settings."""
    answer = unknown(await call("config", "--output=json", KUBECONFIG=str(cluster_without_permission)))
    assert f"get configmaps in namespace {SYSTEM}" in answer["configMap"]["reason"]


def unknown(outcome):
    """Return the JSON answer of a run that could not read the ConfigMap: its status is 3."""
    assert outcome.status == 3
    assert "Traceback" not in outcome.err
    answer = json.loads(outcome.out)
    assert answer["configMap"]["state"] == "unknown"
    assert len(answer["settings"]) == len(FIELDS)
    return answer


async def test_without_a_kubeconfig_it_shows_what_is_known(call):
    """The command shows flags, environment and defaults: the controller will run elsewhere."""
    outcome = await call("config")
    assert outcome.status == 3
    assert "not read: no way to a Kubernetes API server" in outcome.out.splitlines()[-1]


async def test_a_value_that_no_config_map_can_mend_is_told_without_a_cluster(call, closed_cluster):
    """The environment wins over the ConfigMap, so ``wva run`` would not start, whatever the ConfigMap has."""
    outcome = await call("config", KUBECONFIG=str(closed_cluster), WVA_TARGET_KINDS="Rollout")
    assert outcome.status == 1
    (line,) = outcome.err.splitlines()
    assert "WVA_TARGET_KINDS='Rollout' (environment): expected StatefulSet or LeaderWorkerSet" in line


async def test_an_unknown_flag_is_a_usage_error(call):
    """``wva config`` refuses an unknown flag as ``wva run`` does."""
    outcome = await call("config", "--leader-elct")
    assert outcome.status == 2
    assert "did you mean --leader-elect?" in outcome.err

"""The main ConfigMap of a running controller: live settings apply, all others are rejected."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import time

import pytest
import structlog

from tests.app.stage import MAIN, SYSTEM, until
from wva import log
from wva.api.meta import Key
from wva.sim.apiserver import Patch

URL = "PROMETHEUS_BASE_URL"
IMMUTABLE = "ImmutableConfigChangeRejected"
CACHE = "PROMETHEUS_METRICS_CACHE_"


@pytest.fixture
def lines():
    """Log JSON during the test, and return a function that returns the lines since its last call."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream):
        log.configure(level="info", encoding="json")

    def read():
        written = stream.getvalue()
        stream.seek(0)
        stream.truncate()
        return [json.loads(line) for line in written.splitlines()]

    yield read
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def start(stage, **data):
    """Create the ConfigMap, and return the arguments that start the controller with it."""
    stage.config_map(MAIN, data)
    return {"interval": None, "config_map": data}


async def taken(stage):
    """Wait until the controller has seen the current ConfigMap."""
    version = stage.api.store.get("configmaps", Key(SYSTEM, MAIN))["metadata"]["resourceVersion"]
    await until(lambda: int(stage.app.cache_versions()["configmaps"] or 0) >= int(version))


async def test_a_new_interval_changes_the_pace(stage, lines):
    """A shorter interval starts cycles at once, and is logged. A longer one stops them."""
    async with stage.controller(**start(stage, GLOBAL_OPT_INTERVAL="1h")):
        await stage.cycles(1)
        lines()
        stage.config_map(MAIN, {"GLOBAL_OPT_INTERVAL": "20ms"})
        await stage.cycles(5)
        (line,) = [line for line in lines() if line["event"] == "Updated optimization interval"]
        assert (line["old"], line["new"]) == ("3600s", "0.02s")
        stage.config_map(MAIN, {"GLOBAL_OPT_INTERVAL": "1h"})
        await taken(stage)
        await until(lambda: stage.app.idle)
        done = stage.metric("wva_cycles_total", result="success")
        await until(lambda: stage.app.idle)
        assert stage.metric("wva_cycles_total", result="success") == done


@pytest.mark.parametrize(("before", "after"), [({}, {"LOG_LEVEL": "debug"}), ({"V": "2"}, {"V": "4"})])
async def test_the_log_level_changes_what_is_logged(stage, lines, before, after):
    """A new log level applies at once, in both directions."""
    data = {"GLOBAL_OPT_INTERVAL": "1h"}
    async with stage.controller(**start(stage, **data, **before)):
        await stage.cycles(1)
        assert not said_debug(lines)
        stage.config_map(MAIN, {**data, **after})
        await taken(stage)
        assert said_debug(lines)
        stage.config_map(MAIN, {**data, "LOG_LEVEL": "error"})
        await taken(stage)
        assert not said_debug(lines)


def said_debug(lines):
    """Return whether the log has debug lines now."""
    lines()
    log.get("test").debug("said")
    return [line["event"] for line in lines()] == ["said"]


async def test_new_age_limits_change_the_verdict_on_a_sample(stage):
    """Under new limits the same sample is fresh, stale, missing, and fresh again."""
    stage.deployment()
    stage.va()
    await stage.scrape()
    data = {"GLOBAL_OPT_INTERVAL": "20ms"}
    async with stage.controller(**start(stage, **data)):
        await until(lambda: stage.metric("wva_samples_total", signal="kv_cache_usage", state="fresh"))
        stage.config_map(MAIN, {**data, f"{CACHE}FRESH_THRESHOLD": "1ms"})
        await until(lambda: stage.metric("wva_samples_total", signal="kv_cache_usage", state="stale"))
        stage.config_map(MAIN, {**data, f"{CACHE}FRESH_THRESHOLD": "1ms", f"{CACHE}UNAVAILABLE_THRESHOLD": "2ms"})
        await until(lambda: stage.metric("wva_samples_total", signal="kv_cache_usage", state="missing"))
        stage.config_map(MAIN, data)
        await taken(stage)
        fresh = stage.metric("wva_samples_total", signal="kv_cache_usage", state="fresh")
        await until(lambda: stage.metric("wva_samples_total", signal="kv_cache_usage", state="fresh") > fresh)


async def test_the_cache_follows_its_keys(stage):
    """With a TTL cycles use the cache, and with the cache off they do not."""
    stage.deployment()
    stage.va()
    await stage.scrape()
    data = {"GLOBAL_OPT_INTERVAL": "20ms"}
    async with stage.controller(**start(stage, **data)):
        await stage.cycles(2)
        assert stage.metric("wva_prometheus_cache_lookups_total", result="hit") == 0
        stage.config_map(MAIN, {**data, f"{CACHE}TTL": "30s"})
        await until(lambda: stage.metric("wva_prometheus_cache_lookups_total", result="hit"))
        stage.config_map(MAIN, {**data, f"{CACHE}TTL": "30s", f"{CACHE}ENABLED": "false"})
        await taken(stage)
        await stage.cycles(1)
        hits = stage.metric("wva_prometheus_cache_lookups_total", result="hit")
        await stage.cycles(3)
        assert stage.metric("wva_prometheus_cache_lookups_total", result="hit") == hits


async def test_a_change_that_needs_a_restart_is_rejected(stage, lines):
    """WVA reports it in an event and in the log, keeps the running value, and applies the other changes.

    Secrets are hidden.
    """
    stage.va()
    async with stage.controller(**start(stage, WATCH_NAMESPACE="ns", GLOBAL_OPT_INTERVAL="1h")):
        await stage.cycles(1)
        new = {"WATCH_NAMESPACE": "other", "GLOBAL_OPT_INTERVAL": "20ms", "PROMETHEUS_BEARER_TOKEN": "hunter2"}
        stage.config_map(MAIN, new)
        await stage.cycles(3)
        (event,) = await until(lambda: stage.events(IMMUTABLE))
        assert event["type"] == "Warning"
        assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("ConfigMap", MAIN)
        assert "WATCH_NAMESPACE: ns -> other" in event["message"]
        assert "PROMETHEUS_BEARER_TOKEN: (not set) -> ***" in event["message"]
        assert "hunter2" not in json.dumps(stage.api.store.list("events"))
        (line,) = [line for line in lines() if line["event"] == "Attempted to change immutable parameters"]
        assert line["level"] == "error"
        assert described(stage)["WATCH_NAMESPACE"] == "ns"
        assert described(stage)["GLOBAL_OPT_INTERVAL"] == "0.02s"


async def test_the_same_content_is_not_rejected_twice(stage):
    """Further edits of the ConfigMap do not repeat the event."""
    async with stage.controller(**start(stage, WATCH_NAMESPACE="ns", GLOBAL_OPT_INTERVAL="1h")):
        await until(lambda: stage.metric("wva_leader"))
        stage.config_map(MAIN, {"WATCH_NAMESPACE": "other", "GLOBAL_OPT_INTERVAL": "1h"})
        await until(lambda: stage.events(IMMUTABLE))
        for interval in ("2h", "3h"):
            stage.config_map(MAIN, {"WATCH_NAMESPACE": "other", "GLOBAL_OPT_INTERVAL": interval})
        patch = {"metadata": {"annotations": {"touched": str(time.time())}}}
        stage.api.store.patch("configmaps", Key(SYSTEM, MAIN), Patch(body=patch))
        await taken(stage)
        await until(lambda: stage.app.idle)
        (event,) = stage.events(IMMUTABLE)
        assert event["count"] == 1


async def test_what_is_not_in_force_is_counted_as_long_as_it_stands(stage):
    """The metric counts bad values and changes that need a restart, until they are corrected or deleted."""

    def counted():
        return stage.metric("wva_config_invalid_entries", config_map=MAIN)

    data = {"WATCH_NAMESPACE": "ns", "GLOBAL_OPT_INTERVAL": "1h"}
    async with stage.controller(**start(stage, **data)):
        for wrong, number in (({"V": "many"}, 1), ({"V": "many", "WATCH_NAMESPACE": "other"}, 2), ({}, 0)):
            stage.config_map(MAIN, data | wrong)
            await taken(stage)
            assert counted() == number
        stage.config_map(MAIN, data | {"V": "many"})
        await taken(stage)
        stage.api.store.delete("configmaps", Key(SYSTEM, MAIN))
        await until(lambda: counted() == 0)


async def test_an_environment_that_disagrees_is_no_change(stage):
    """The environment sets the URL, so the URL in the ConfigMap does not count and causes no event."""
    async with stage.controller(**start(stage, **{URL: "https://elsewhere", "GLOBAL_OPT_INTERVAL": "1h"})):
        await until(lambda: stage.metric("wva_leader"))
        stage.config_map(MAIN, {URL: "https://elsewhere", "GLOBAL_OPT_INTERVAL": "2h"})
        await taken(stage)
        await until(lambda: stage.app.idle)
        assert stage.events(IMMUTABLE) == []


async def test_a_deleted_config_map_leaves_everything_as_it_was(stage, lines):
    """WVA keeps its settings, posts an event and logs it. A new ConfigMap applies again."""
    async with stage.controller(**start(stage, GLOBAL_OPT_INTERVAL="20ms")):
        await stage.cycles(1)
        stage.api.store.delete("configmaps", Key(SYSTEM, MAIN))
        await until(lambda: stage.events("ConfigurationDeleted"))
        await stage.cycles(3)
        assert "main_config_map_gone" in [line["event"] for line in lines()]
        stage.config_map(MAIN, {"GLOBAL_OPT_INTERVAL": "30ms"})
        await until(lambda: described(stage)["GLOBAL_OPT_INTERVAL"] == "0.03s")


async def test_a_config_map_that_went_while_the_process_started_is_told(stage, lines):
    """WVA logs that the ConfigMap was deleted between the first read and the sync of the caches."""
    async with stage.controller(interval=None, config_map={"GLOBAL_OPT_INTERVAL": "20ms"}):
        await stage.cycles(1)
        assert "main_config_map_gone" in [line["event"] for line in lines()]
        assert described(stage)["GLOBAL_OPT_INTERVAL"] == "0.02s"


async def test_a_standby_follows_the_config_map_too(stage, lines):
    """A standby applies live settings, but posts no event."""
    lease = {"metadata": {"name": "72dd1cf1.llm-d.ai", "namespace": SYSTEM}, "spec": held_by_another()}
    stage.api.store.create("leases.coordination.k8s.io", lease)
    data = {"WATCH_NAMESPACE": "ns", "GLOBAL_OPT_INTERVAL": "1h"}
    async with stage.controller(**start(stage, **data), LEADER_ELECT="true"):
        await until(lambda: stage.app.cache_versions()["configmaps"])
        stage.config_map(MAIN, {**data, "WATCH_NAMESPACE": "other", "LOG_LEVEL": "debug"})
        await taken(stage)
        assert said_debug(lines)
        assert stage.metric("wva_leader") == 0
        assert stage.events(IMMUTABLE) == []


@pytest.mark.parametrize("elect", ["true", "false"])
async def test_a_value_that_was_bad_at_the_start_has_its_event_once(stage, elect):
    """The process sees the ConfigMap before it leads, and posts the event afterwards."""
    async with stage.controller(**start(stage, GLOBAL_OPT_INTERVAL="20ms", V="many"), LEADER_ELECT=elect):
        (event,) = await until(lambda: stage.events("InvalidConfiguration"))
        assert "V='many'" in event["message"]
        await stage.cycles(2)
        assert stage.events("InvalidConfiguration")[0]["count"] == 1


async def test_what_was_changed_before_anybody_led_has_its_event(stage):
    """The ConfigMap changes between the first read and the election, and WVA posts the event afterwards."""
    data = {"WATCH_NAMESPACE": "ns", "GLOBAL_OPT_INTERVAL": "1h"}
    stage.config_map(MAIN, {**data, "WATCH_NAMESPACE": "other"})
    async with stage.controller(interval=None, config_map=data, LEADER_ELECT="true"):
        (event,) = await until(lambda: stage.events(IMMUTABLE))
        assert "WATCH_NAMESPACE: ns -> other" in event["message"]
        assert event["count"] == 1


def held_by_another():
    """Return the spec of a Lease that another process holds for an hour."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    return {"holderIdentity": "another", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now}


@pytest.mark.parametrize("flag", ["WVA_SCALE_TO_ZERO", "WVA_LIMITED_MODE"])
async def test_a_feature_flag_needs_a_restart(stage, flag):
    """A change is rejected with an event, and the running value stays."""
    data = {"GLOBAL_OPT_INTERVAL": "1h", flag: "false"}
    async with stage.controller(**start(stage, **data)):
        await until(lambda: stage.metric("wva_leader"))
        stage.config_map(MAIN, {**data, flag: "true"})
        (event,) = await until(lambda: stage.events(IMMUTABLE))
        assert (event["type"], event["involvedObject"]["name"]) == ("Warning", MAIN)
        assert f"{flag}: false -> true" in event["message"]
        assert described(stage)[flag] == "false"


def described(stage):
    """Return the settings in force as ``/debug/config`` shows them."""
    return {entry.name: entry.value for entry in stage.app.configuration.settings.describe()}

"""Broken ConfigMaps: the last good one stays in force, event and condition say so, and WVA goes on deciding."""

from __future__ import annotations

import pytest

from tests.app.stage import MAIN, SATURATION, SYSTEM, until
from tests.config.parsing import parse_saturation
from tests.timing import times_as_long
from wva.api.meta import Key
from wva.model.policy import Policy

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + number)}: &{chr(98 + number)} [{', '.join(['*' + chr(97 + number)] * 9)}]\n" for number in range(12)
)
BROKEN = {
    "bomb": BOMB + "kvCacheThreshold: *m",
    "alias": "model_id: &x a\nkvCacheThreshold: *x",
    "merge-key": "<<: {kvCacheThreshold: 0.5}\nkvCacheThreshold: [1]",
    "megabyte": "x" * 1_000_000,
    "binary": "\x00\x01\ufffe\udcff".encode("utf-8", "replace").decode() + "\x7f\x80",
    "tabs": "\tkvCacheThreshold: 0.5",
    "duplicate-keys": "kvCacheThreshold: 0.5\nkvCacheThreshold: 0.6",
    "tag": "kvCacheThreshold: !!python/object/apply:os.system ['true']",
    "nested": "kvCacheThreshold: " + "[" * 30_000,
    "list": "- kvCacheThreshold: 0.5",
    "nan": "kvCacheThreshold: .nan",
    "infinite": "queueLengthThreshold: .inf",
    "overflow": "queueLengthThreshold: 1e308",
    "negative": "queueSpareTrigger: -1",
    "above-one": "kvCacheThreshold: 1.01",
    "quoted": "kvCacheThreshold: '0.5'",
    "unterminated": 'kvCacheThreshold: "0.5',
}


BY_DAY = {"bomb", "megabyte", "nested", "tag", "duplicate-keys", "nan"}
"""What the parser says of each text, tests/config/test_saturation_config.py tells; the others are sent each night."""


@pytest.mark.parametrize(
    "text",
    [pytest.param(text, id=name, marks=() if name in BY_DAY else pytest.mark.nightly) for name, text in BROKEN.items()],
)
async def test_a_broken_default_leaves_the_last_good_one(stage, text):
    """An event and a condition report it, and the old thresholds stay in force until it is corrected."""
    stage.config_map(SATURATION, {"default": "kvCacheThreshold: 0.3\nkvSpareTrigger: 0.05"})
    await stage.scrape()
    async with stage.controller(interval="100ms"):
        await until(lambda: stage.series().get("va", 0) > 2)  # usage 0.5 is above 0.3
        before = stage.app.configuration.policy
        stage.config_map(SATURATION, {"default": text})
        await until(lambda: stage.told("ConfigurationValid") == ("False", "InvalidConfiguration"))
        assert stage.app.configuration.policy == before
        await until(lambda: stage.events("InvalidConfiguration"))
        event = stage.events("InvalidConfiguration")[0]
        assert (event["type"], event["involvedObject"]["name"]) == ("Warning", SATURATION)
        assert len(event["message"]) <= 1024
        await stage.works()
        stage.config_map(SATURATION, {"default": ""})
        await until(lambda: stage.told("ConfigurationValid") == ("True", "ConfigurationAccepted"))


async def test_tens_of_thousands_of_bad_entries_are_told_in_short(stage, output):
    """Status and log stay short, and WVA goes on deciding."""
    async with stage.controller(interval="100ms"):
        await until(lambda: stage.number() == 2)
        stage.config_map(SATURATION, {f"k{number}": "x" for number in range(20_000)})
        await until(lambda: stage.told("ConfigurationValid") == ("False", "InvalidConfiguration"))
        await stage.works()
        assert stage.message("ConfigurationValid").endswith("and 9991 more")
    assert output().count("configuration_rejected") < 200


async def test_a_broken_interval_leaves_a_valid_one(stage):
    """The interval in force stays positive, and cycles go on."""
    async with stage.controller(interval=None, config_map={"GLOBAL_OPT_INTERVAL": "20ms"}):
        stage.config_map(MAIN, {"GLOBAL_OPT_INTERVAL": "20ms"})
        await until(lambda: stage.number() == 2)
        for interval in ("0", "-5s", "soon", "", "1d", "9" * 300 + "s", "x" * 900_000, "1m\n"):
            stage.config_map(MAIN, {"GLOBAL_OPT_INTERVAL": interval, "NO_SUCH_KEY": "\x00", "LOG_LEVEL": "loud"})
            version = stage.api.store.get("configmaps", Key(SYSTEM, MAIN))["metadata"]["resourceVersion"]
            await until(lambda version=version: stage.app.cache_versions()["configmaps"] == version)
            assert stage.app.configuration.interval_seconds > 0, interval
        stage.va("proof", target="proof")
        await until(lambda: stage.number("proof") == 3)


@pytest.mark.parametrize("interval", ["1ns", "1us", "100us"])
async def test_an_interval_of_next_to_nothing_starves_nobody(stage, interval):
    """Watches and probes still run, even if cycles have nothing to wait for."""
    stage.delete_va()
    async with stage.controller(interval=interval):
        await stage.cycles(3)
        await stage.works()
        assert stage.metric("wva_cycles_total", result="success") < 2000


async def test_a_config_map_without_data_is_an_empty_one(stage):
    """If its data cannot be decoded, the last good state stays in force. Without data, the defaults are in force."""
    stage.config_map(SATURATION, {"default": "kvCacheThreshold: 0.3\nkvSpareTrigger: 0.05"})
    async with stage.controller(interval="100ms"):
        await until(lambda: stage.number() == 2)
        broken = (["default"], {"default": 3}, "default")
        for data in broken:
            stage.force("configmaps", SATURATION, lambda value, data=data: value.update(data=data), namespace=SYSTEM)
        await until(lambda: stage.metric("wva_undecodable_objects_total", resource="configmaps") >= len(broken))
        assert stage.app.configuration.policy.saturation.kv_cache_threshold == 0.3
        stage.force("configmaps", SATURATION, lambda value: value.pop("data"), namespace=SYSTEM)
        await until(lambda: stage.app.configuration.policy == Policy())
        await stage.works()


@pytest.mark.parametrize("filler", ["[", "{", "? ", "&a ", "- ", " ", "#", "---\n", "a: b\n", "\t", "!!x ", "'"])
def test_no_text_takes_long_to_refuse(filler):
    """Sixteen times the text takes less than 64 times as long."""

    def parse(size):
        parse_saturation({f"k{number}": filler * (size // len(filler)) for number in range(15)})

    assert times_as_long(lambda: parse(60_000), lambda: parse(60_000 // 16)) < 64

"""A new key needs only its declaration and code that reads its value; this file declares keys that show it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Annotated

import pytest
from structlog.testing import capture_logs

from tests.config.parsing import parse_layered
from tests.docs.rendering import entry_table, settings_rows
from wva.cli.flags import add_settings_flags, given_flags
from wva.config import Inputs, Settings, load
from wva.config.declare import DURATION, GLOBAL_DEFAULT, SWITCH, Live, declarations, field, flag, key, number
from wva.config.entries import LayeredMap
from wva.config.keys import ModelFields
from wva.config.load import LiveSettings, describe, static_changes, unknown_keys
from wva.model.policy import Merged
from wva.numbers import Real


class MoreSettings(Settings):
    """Three more settings, of different sources and ways to change."""

    nap_time: Annotated[float, DURATION] = flag(
        5.0, "How long to nap.", live=Live("Updated naps", "naps_updated"), metavar="DURATION"
    )
    nap_switch: Annotated[bool, SWITCH] = key(False, "Whether to nap.", "WVA_NAP")
    nap_place: str = key("bed", "Where to nap.", places=("environment",))


def test_flag_environment_config_map_and_default_in_this_order():
    """WVA also reports a bad value, and reads no source that the declaration excludes."""
    parser = argparse.ArgumentParser()
    add_settings_flags(parser, MoreSettings)
    flags = given_flags(parser.parse_args(["--nap-time", "1m"]))
    assert flags == {"nap_time": "1m"}
    for sources, value, source in (
        (Inputs(flags, {"NAP_TIME": "2m"}, {"NAP_TIME": "3m"}), 60.0, "flag"),
        (Inputs({}, {"NAP_TIME": "2m"}, {"NAP_TIME": "3m"}), 120.0, "environment"),
        (Inputs({}, {}, {"NAP_TIME": "3m"}), 180.0, "configmap"),
        (Inputs({}, {}, {}), 5.0, "default"),
    ):
        loaded = load(sources, MoreSettings)
        assert (loaded.settings.nap_time, loaded.sources["nap_time"], loaded.problems) == (value, source, ())
    (problem,) = load(Inputs({}, {"WVA_NAP": "maybe"}, {}), MoreSettings).problems
    assert str(problem) == "WVA_NAP='maybe' (environment): expected true or false; in force: false"
    assert load(Inputs({}, {}, {"NAP_PLACE": "sofa"}), MoreSettings).settings.nap_place == "bed"
    assert unknown_keys({"NAP_TIME": "", "NAP_TIMES": ""}, MoreSettings) == ["NAP_TIMES"]


def test_it_is_followed_while_the_process_runs_or_rejected():
    """WVA applies and logs a change of the live setting. A change of the other one waits for a restart."""
    sources = Inputs({}, {}, {"NAP_TIME": "3m"})
    live = LiveSettings(load(sources, MoreSettings).settings, sources)
    with capture_logs() as logged:
        taken = live.take({"NAP_TIME": "4m", "WVA_NAP": "true"})
    assert (live.current.nap_time, live.current.nap_switch) == (240.0, False)
    assert "WVA_NAP: (not set) -> true" in taken.rejected
    told = next(line for line in logged if line["event"] == "Updated naps")
    assert (told["event_name"], told["old"], told["new"]) == ("naps_updated", "180s", "240s")
    assert [change.parameter for change in static_changes({}, {"WVA_NAP": "1", "NAP_TIME": "1s"}, MoreSettings)] == [
        "WVA_NAP"
    ]


def test_it_is_shown_and_documented():
    """The setting is in ``wva config``, in ``--help`` and in the table of the documentation."""
    entry = next(each for each in describe(load(Inputs({}, {}, {}), MoreSettings)) if each.name == "NAP_TIME")
    assert (entry.value, entry.applies, entry.flags) == ("5s", "live", ("--nap-time",))
    parser = argparse.ArgumentParser()
    add_settings_flags(parser, MoreSettings)
    assert "How long to nap. Default: 5s. Also: NAP_TIME." in " ".join(parser.format_help().split())
    assert settings_rows(MoreSettings)[-3:] == [
        ("`--nap-time`", "`NAP_TIME`", "both", "`5s`", "live", "How long to nap."),
        ("-", "`WVA_NAP`", "both", "`false`", "start", "Whether to nap."),
        ("-", "`NAP_PLACE`", "environment", "`bed`", "start", "Where to nap."),
    ]


@dataclass(frozen=True)
class NapPolicy(Merged):
    """The policy that reads the values of the entries."""

    depth: float = 0.5
    seconds: float = 60.0


class NapFields(ModelFields):
    """The entries of a made-up ConfigMap."""

    depth: Annotated[float | None, number(Real(0, 1))] = field("napDepth", "How deep to nap.")
    seconds: Annotated[float | None, DURATION] = field("napTime", "How long to nap.")
    everybody: Annotated[float | None, number(Real(0, 9))] = field(
        "everybody", "About all models.", place=GLOBAL_DEFAULT
    )


class Naps(LayeredMap):
    """The made-up ConfigMap."""

    fields = NapFields
    base = NapPolicy()

    def rules(self, default, overrides):
        """Return the default and the overrides."""
        return default, list(overrides)

    @staticmethod
    def override(_name, model_id, _namespace, policy, _own_fields):
        """Return the model with its policy."""
        return model_id, policy


def test_a_field_of_an_entry_is_read_and_inherited():
    """The entry of a model inherits from ``default``, which inherits from the built-in policy."""
    parsed = parse_layered(Naps, {"default": "napDepth: 0.9", "a": "model_id: m\nnapTime: 10m"})
    assert parsed.held.everywhere == (NapPolicy(0.9), [("m", NapPolicy(0.9, 600.0))])
    assert (parsed.errors, parsed.warnings) == ((), ())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "napDepth: 2",
            (
                "default.napDepth: got 2, expected a number from 0 to 1, without quotes; "
                "in force: 0.5, and nothing of this entry"
            ),
        ),
        (
            "napTime: soon",
            (
                "default.napTime: got soon, expected a duration such as 90s, 10m or 1h30m, above zero; "
                "in force: 60s, and nothing of this entry"
            ),
        ),
        ("[", "in force: napDepth 0.5, napTime 60s, and nothing of this entry"),
    ],
)
def test_a_bad_field_is_told_with_what_is_in_force(text, told):
    """The error says what the field takes. The error of a broken entry has all values in force."""
    (error,) = parse_layered(Naps, {"default": text}).errors
    assert told in str(error)


def test_a_field_of_the_global_default_is_said_in_vain_elsewhere():
    """WVA warns about such a field in another entry, because of its declaration alone."""
    assert parse_layered(Naps, {"a": "model_id: m\neverybody: 1"}).warnings == (
        "a: everybody has no effect here: it is read from default of this ConfigMap only",
    )


def test_a_field_has_its_row_in_the_documentation():
    """The row has the value that holds without the field."""
    rows = entry_table([NapFields], base=Naps.base).splitlines()
    assert "| `napDepth` | `0.5` | How deep to nap. |" in rows
    assert "| `napTime` | `1m` | How long to nap. |" in rows


def test_the_range_of_a_number_is_declared_once():
    """The text of an error and the schema of the chart use the same range."""
    form = declarations(NapFields)["depth"].form
    assert (form.limits, form.expected) == (Real(0, 1), "a number from 0 to 1, without quotes")

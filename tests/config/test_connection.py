"""All settings of the connection to Prometheus come from one source, and WVA shows its secrets nowhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.config.samples import FIELDS, loaded, samples
from wva.config.load import describe
from wva.prometheus.settings import PrometheusSettings

CONNECTION = [name for name in FIELDS if name.startswith("prometheus_")]
URL = "PROMETHEUS_BASE_URL"
TOKEN = "hunter2-of-the-config-map"


def keys(values):
    """Return settings by their key."""
    return {FIELDS[name].keys[0]: text for name, text in values.items()}


ALL = keys({name: samples(name)[0][0] for name in CONNECTION if name != "prometheus_base_url"})


@pytest.mark.parametrize("name", [name for name in CONNECTION if name != "prometheus_base_url"])
def test_a_url_from_the_environment_shuts_out_the_config_map(name):
    """If the environment gives the URL, WVA takes no setting of the connection from the ConfigMap."""
    result = loaded(environment={URL: "https://env"}, config_map={URL: "https://map", **ALL})
    assert result.settings.prometheus_base_url == "https://env"
    assert getattr(result.settings, name) == FIELDS[name].default
    assert result.sources[name] == "default"


@pytest.mark.parametrize("name", CONNECTION)
def test_a_url_from_the_config_map_brings_its_connection(name):
    """If the ConfigMap gives the URL, WVA takes the other settings of the connection from there, too."""
    result = loaded(config_map={URL: "one", **ALL})
    assert getattr(result.settings, name) == samples(name)[0][1]


@given(st.dictionaries(st.sampled_from(sorted([URL, *ALL])), st.sampled_from(["", "https://env", "true"])))
def test_a_token_of_the_config_map_never_meets_a_url_of_the_environment(environment):
    """This holds whatever other settings the environment has."""
    result = loaded(environment=environment, config_map={URL: "https://map", "PROMETHEUS_BEARER_TOKEN": TOKEN})
    if result.sources["prometheus_base_url"] == "environment":
        assert result.settings.prometheus_bearer_token.get_secret_value() != TOKEN


def test_an_empty_url_in_the_environment_does_not_count():
    """WVA uses the ConfigMap then, because charts render empty values."""
    result = loaded(environment={URL: ""}, config_map={URL: "https://map", "PROMETHEUS_SERVER_NAME": "p"})
    assert result.settings.prometheus_base_url == "https://map"
    assert result.settings.prometheus_server_name == "p"


def test_other_settings_keep_their_own_order():
    """A URL in the environment changes only the settings of the connection."""
    result = loaded(environment={URL: "https://env"}, config_map={"GLOBAL_OPT_INTERVAL": "5s"})
    assert result.settings.global_opt_interval == 5


def test_a_problem_of_a_shut_out_value_is_not_told():
    """WVA reports no problem of a value that it does not read."""
    environment = {URL: "https://env"}
    result = loaded(environment=environment, config_map={"PROMETHEUS_ALLOW_HTTP": "maybe"})
    assert result.problems == ()


@pytest.mark.parametrize("name", ["bearer_token", "headers", "parameters"])
def test_a_secret_is_nowhere_in_print(name):
    """The text of the settings, of the loaded result and of what ``wva config`` shows does not contain it."""
    result = loaded(environment={URL: "https://env", f"PROMETHEUS_{name.upper()}": f"X-Scope-OrgID: {TOKEN}"})
    assert TOKEN in getattr(result.settings, f"prometheus_{name}").get_secret_value()
    connection = PrometheusSettings.of(result.settings)
    assert TOKEN in getattr(connection, name)
    for shown in (result, result.settings, connection, describe(result)):
        text = f"{shown!r} {shown}"
        assert TOKEN not in text


def test_the_connection_settings_are_the_known_ones():
    """WVA recognizes these settings by their names, so a new one must be added here."""
    assert set(keys(dict.fromkeys(CONNECTION, ""))) == {
        URL,
        "PROMETHEUS_ALLOW_HTTP",
        "PROMETHEUS_TLS_INSECURE_SKIP_VERIFY",
        "PROMETHEUS_CA_CERT_PATH",
        "PROMETHEUS_CLIENT_CERT_PATH",
        "PROMETHEUS_CLIENT_KEY_PATH",
        "PROMETHEUS_SERVER_NAME",
        "PROMETHEUS_BEARER_TOKEN",
        "PROMETHEUS_TOKEN_PATH",
        "PROMETHEUS_HEADERS",
        "PROMETHEUS_HEADERS_PATH",
        "PROMETHEUS_PARAMETERS",
        "PROMETHEUS_PARAMETERS_PATH",
    }

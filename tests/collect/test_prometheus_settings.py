"""Which connection settings are refused, and that secrets are not shown."""

from __future__ import annotations

import pytest

from wva.collect.prometheus import PrometheusClient, PrometheusSettings


def test_https_is_accepted():
    """The usual settings are valid."""
    settings = PrometheusSettings("https://prometheus.monitoring.svc:9090", ca_cert_path="/ca.crt", bearer_token="t")
    assert settings.validate() == []


def test_plain_http_is_refused_unless_allowed():
    """Tokens do not travel in the clear by accident."""
    (problem,) = PrometheusSettings("http://prometheus:9090").validate()
    assert "PROMETHEUS_BASE_URL" in problem
    assert "PROMETHEUS_ALLOW_HTTP" in problem
    assert PrometheusSettings("http://prometheus:9090", allow_http=True).validate() == []


@pytest.mark.parametrize(
    "url", ["", "prometheus:9090", "ftp://x", "https://", "https://x:port", "https://[x", "https://x:0"]
)
def test_what_is_no_url_is_refused(url):
    """The problem names the key and an example."""
    (problem,) = PrometheusSettings(url, allow_http=True).validate()
    assert problem.startswith("PROMETHEUS_BASE_URL")
    assert "expected" in problem


def test_a_user_in_the_url_is_refused_and_not_shown():
    """URLs end up in logs and conditions."""
    (problem,) = PrometheusSettings("https://me:hunter2@prometheus").validate()
    assert "hunter2" not in problem


@pytest.mark.parametrize("part", ["?x=y", "#f"])
def test_a_query_or_fragment_in_the_url_is_refused(part):
    """The path of the API is appended to the URL."""
    assert len(PrometheusSettings("https://prometheus/" + part).validate()) == 1


@pytest.mark.parametrize(("cert", "key"), [("/c", ""), ("", "/k")])
def test_a_client_certificate_needs_both_files(cert, key):
    """The original silently used neither."""
    (problem,) = PrometheusSettings("https://p", client_cert_path=cert, client_key_path=key).validate()
    assert "needs both" in problem


def test_a_token_that_cannot_stand_in_a_header_is_refused_unseen():
    """A line end inside would forge a header."""
    (problem,) = PrometheusSettings("https://p", bearer_token="abc\r\nX-Evil: 1").validate()
    assert "PROMETHEUS_BEARER_TOKEN" in problem
    assert "Evil" not in problem


def test_the_token_is_not_in_the_representation():
    """Settings are logged."""
    assert "s3cret" not in repr(PrometheusSettings("https://p", bearer_token="s3cret"))


def test_a_client_refuses_invalid_settings(clock, instruments):
    """Nobody sends a token over plain HTTP by forgetting to validate."""
    with pytest.raises(ValueError, match="PROMETHEUS_ALLOW_HTTP"):
        PrometheusClient(PrometheusSettings("http://p", bearer_token="t"), clock=clock, instruments=instruments)

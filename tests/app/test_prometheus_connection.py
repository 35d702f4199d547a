"""The running process with a Prometheus that demands a client certificate and a token."""

from __future__ import annotations

import ssl
import time

import pytest
import trustme

from tests.app.stage import ControllerStage, until
from wva.sim.prometheus import EmbeddedPrometheus


class ConnectionFiles:
    """A certificate authority, and the files of the connection."""

    def __init__(self, folder):
        """Write the first files."""
        self.authority = trustme.CA()
        self.folder = folder
        self.authority.cert_pem.write_to_path(folder / "ca.crt")
        self.token("first")
        self.pair()

    def token(self, text):
        """Replace the token."""
        (self.folder / "token").write_text(text)

    def pair(self):
        """Replace certificate and key of the client, one after the other."""
        issued = self.authority.issue_cert("controller@example.com")
        issued.cert_chain_pems[0].write_to_path(self.folder / "tls.crt")
        issued.private_key_pem.write_to_path(self.folder / "tls.key")

    def server(self):
        """Return the TLS context of a server that demands client certificates of this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("127.0.0.1").configure_cert(context)
        self.authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def settings(self, url):
        """Return the keys of the main ConfigMap."""
        return {
            "PROMETHEUS_BASE_URL": url,
            "PROMETHEUS_CA_CERT_PATH": str(self.folder / "ca.crt"),
            "PROMETHEUS_CLIENT_CERT_PATH": str(self.folder / "tls.crt"),
            "PROMETHEUS_CLIENT_KEY_PATH": str(self.folder / "tls.key"),
            "PROMETHEUS_TOKEN_PATH": str(self.folder / "token"),
            "GLOBAL_OPT_INTERVAL": "20ms",
        }


@pytest.fixture
async def identities(tmp_path):
    """Return the files of the connection."""
    folder = tmp_path / "files"
    folder.mkdir()
    return ConnectionFiles(folder)


@pytest.fixture
async def secure(identities, tmp_path, monkeypatch):
    """Return a stage whose Prometheus demands certificate and token, with one variant."""
    stage = ControllerStage(tmp_path, monkeypatch)
    stage.prometheus = EmbeddedPrometheus(now=time.time, tls=identities.server(), token="first")
    async with stage.open():
        stage.deployment(replicas=2)
        stage.va()
        await stage.scrape()
        yield stage


def measured(stage):
    """Return whether the last decision uses measurements."""
    return stage.decision() is not None and stage.decision().source.value == "measured"


async def test_decisions_go_on_through_every_rotation(secure, identities):
    """Certificate and token change while the process runs, and no query fails."""
    configured = identities.settings(secure.prometheus.url)
    async with secure.controller(interval=None, config_map=configured, PROMETHEUS_BASE_URL=""):
        await until(lambda: measured(secure))
        for turn in range(3):
            identities.pair()
            secure.prometheus.token = f"token-{turn}"
            identities.token(f"token-{turn}")
            await secure.cycles(3)
        assert measured(secure)
        assert secure.metric("wva_prometheus_credentials_usable", kind="tls") == 1
        assert secure.metric("wva_prometheus_credentials_usable", kind="token") == 1
        failed = secure.metric("wva_prometheus_queries_total", query="kv_cache_usage", result="error")
        assert failed == 0
    assert secure.number() == 2


async def test_a_token_that_is_refused_holds_the_number_and_is_told_without_it(secure, identities):
    """WVA keeps the number. Condition and readiness report the error without the token."""
    configured = identities.settings(secure.prometheus.url)
    async with secure.controller(interval=None, config_map=configured, PROMETHEUS_BASE_URL=""):
        await until(lambda: measured(secure))
        secure.prometheus.token = "other"
        await until(lambda: secure.told("MetricsAvailable") == ("False", "PrometheusError"))
        assert "401" in secure.message("MetricsAvailable")
        assert secure.series()["va"] == 2
        assert "first" not in secure.message("MetricsAvailable") + " ".join(secure.app.not_ready())
        identities.token("other")
        await until(lambda: secure.told("MetricsAvailable")[0] == "True")

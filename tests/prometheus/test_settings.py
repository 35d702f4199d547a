"""The connection settings that WVA refuses; secrets are not shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from wva.prometheus.authentication import connection_problems
from wva.prometheus.client import PrometheusClient
from wva.prometheus.settings import PrometheusSettings


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a function that gives the path of a file, usable or not, by its name."""
    folder = tmp_path_factory.mktemp("files")
    authority, other = trustme.CA(), trustme.CA()
    issued = authority.issue_cert("client@example.com")
    authority.cert_pem.write_to_path(folder / "ca.crt")
    issued.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    issued.private_key_pem.write_to_path(folder / "tls.key")
    other.issue_cert("x@example.com").private_key_pem.write_to_path(folder / "other.key")
    (folder / "token").write_text("t0ken\n")
    (folder / "prose").write_text("no certificate\n")
    (folder / "empty").touch()
    os.mkfifo(folder / "pipe")
    return lambda name: str(folder / name)


def test_https_is_accepted(files):
    """Settings for HTTPS with every file are valid."""
    settings = PrometheusSettings(
        "https://prometheus.monitoring.svc:9090",
        ca_cert_path=files("ca.crt"),
        client_cert_path=files("tls.crt"),
        client_key_path=files("tls.key"),
        token_path=files("token"),
    )
    assert connection_problems(settings) == []


def test_missing_files_are_told_all_at_once(files):
    """One check names every missing file with its setting."""
    settings = PrometheusSettings(
        "https://p",
        ca_cert_path=files("no-ca"),
        client_cert_path=files("no-crt"),
        client_key_path=files("no-key"),
        token_path=files("no-token"),
    )
    problems = connection_problems(settings)
    assert [problem.partition("=")[0] for problem in problems] == [
        "PROMETHEUS_TOKEN_PATH",
        "PROMETHEUS_CA_CERT_PATH",
        "PROMETHEUS_CLIENT_CERT_PATH",
        "PROMETHEUS_CLIENT_KEY_PATH",
    ]
    assert all("No such file" in problem and "/no-" in problem for problem in problems)
    assert all("; expected a file with " in problem for problem in problems)


@pytest.mark.parametrize("name", ["prose", "empty", "tls.key", ".", "pipe"])
def test_a_ca_file_without_a_certificate_is_refused(files, name):
    """WVA refuses other files, folders and pipes; it does not open a pipe, which would block."""
    (problem,) = connection_problems(PrometheusSettings("https://p", ca_cert_path=files(name)))
    assert problem.startswith("PROMETHEUS_CA_CERT_PATH=")


def test_a_certificate_with_another_key_is_refused(files):
    """The problem names both files, since either may be wrong."""
    pair = {"client_cert_path": files("tls.crt"), "client_key_path": files("other.key")}
    (problem,) = connection_problems(PrometheusSettings("https://p", **pair))
    assert files("tls.crt") in problem
    assert files("other.key") in problem
    assert "mismatch" in problem


@pytest.mark.parametrize("name", ["empty", "pipe", "."])
def test_a_token_file_without_a_token_is_refused(files, name):
    """Without the configured token Prometheus would refuse every query."""
    (problem,) = connection_problems(PrometheusSettings("https://p", token_path=files(name)))
    assert problem.startswith("PROMETHEUS_TOKEN_PATH=")


def test_a_key_with_a_password_is_refused(files, tmp_path):
    """WVA does not ask for the password on a terminal, because the start would wait for ever."""
    key = serialization.load_pem_private_key(Path(files("tls.key")).read_bytes(), password=None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    form = serialization.PrivateFormat.PKCS8
    (tmp_path / "tls.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, encryption))
    pair = {"client_cert_path": files("tls.crt"), "client_key_path": str(tmp_path / "tls.key")}
    (problem,) = connection_problems(PrometheusSettings("https://p", **pair))
    assert problem.endswith("not encrypted")


def test_a_file_beyond_all_measure_is_not_read_whole(tmp_path):
    """WVA refuses a token file that is larger than 4 MiB, such as a disk image."""
    path = tmp_path / "token"
    with path.open("wb") as file:
        file.truncate(2**40)
    (problem,) = connection_problems(PrometheusSettings("https://p", token_path=str(path)))
    assert "is larger than 4 MiB" in problem


def test_a_path_that_is_none_is_told():
    """A path with a NUL is a problem and not an exception."""
    (problem,) = connection_problems(PrometheusSettings("https://p", token_path="a\x00b"))
    assert "cannot be read" in problem
    assert "\x00" not in problem


def test_without_verification_the_tls_files_need_not_be_there(files):
    """Without verification the TLS files may be missing, but the token file must be there."""
    nowhere = {"ca_cert_path": "/no/ca", "client_cert_path": "/no/crt", "client_key_path": "/no/key"}
    assert connection_problems(PrometheusSettings("https://p", insecure_skip_verify=True, **nowhere)) == []
    assert connection_problems(PrometheusSettings("http://p", allow_http=True, **nowhere)) == []
    (problem,) = connection_problems(
        PrometheusSettings("https://p", insecure_skip_verify=True, token_path=files("none"))
    )
    assert problem.startswith("PROMETHEUS_TOKEN_PATH=")


def test_a_direct_token_wins_over_a_file_that_is_not_there():
    """If the setting has a token, WVA does not look at the file."""
    assert connection_problems(PrometheusSettings("https://p", bearer_token="t", token_path="/no/token")) == []


def test_plain_http_is_refused_unless_allowed():
    """Plain HTTP would send the token unencrypted."""
    (problem,) = connection_problems(PrometheusSettings("http://prometheus:9090"))
    assert "PROMETHEUS_BASE_URL" in problem
    assert "PROMETHEUS_ALLOW_HTTP" in problem
    assert connection_problems(PrometheusSettings("http://prometheus:9090", allow_http=True)) == []


@pytest.mark.parametrize(
    "url", ["", "prometheus:9090", "ftp://x", "https://", "https://x:port", "https://[x", "https://x:0"]
)
def test_what_is_no_url_is_refused(url):
    """The problem names the key and shows an example."""
    (problem,) = connection_problems(PrometheusSettings(url, allow_http=True))
    assert problem.startswith("PROMETHEUS_BASE_URL")
    assert "expected" in problem


def test_a_user_in_the_url_is_refused_and_not_shown():
    """Logs and conditions have the URL, so it must not contain a password."""
    (problem,) = connection_problems(PrometheusSettings("https://me:hunter2@prometheus"))
    assert "hunter2" not in problem


@pytest.mark.parametrize("part", ["?x=y", "#f"])
def test_a_query_or_fragment_in_the_url_is_refused(part):
    """WVA appends the path of the API to the URL."""
    assert len(connection_problems(PrometheusSettings("https://prometheus/" + part))) == 1


@pytest.mark.parametrize(("cert", "key"), [("/c", ""), ("", "/k")])
def test_a_client_certificate_needs_both_files(cert, key):
    """The original ignored a single file without a message."""
    (problem,) = connection_problems(PrometheusSettings("https://p", client_cert_path=cert, client_key_path=key))
    assert "needs both" in problem


def test_a_token_that_cannot_stand_in_a_header_is_refused_unseen():
    """A line end in a token would add a header; the problem does not show the token."""
    (problem,) = connection_problems(PrometheusSettings("https://p", bearer_token="abc\r\nX-Evil: 1"))
    assert "PROMETHEUS_BEARER_TOKEN" in problem
    assert "Evil" not in problem


def test_the_token_is_not_in_the_representation():
    """Settings are logged, so their representation has no token."""
    assert "s3cret" not in repr(PrometheusSettings("https://p", bearer_token="s3cret"))


def test_a_client_refuses_invalid_settings(clock, instruments):
    """Code that forgets to validate the settings cannot send a token over plain HTTP."""
    with pytest.raises(ValueError, match="PROMETHEUS_ALLOW_HTTP"):
        PrometheusClient(PrometheusSettings("http://p", bearer_token="t"), clock=clock, instruments=instruments)

"""Wrong command lines: one line on stderr and no traceback.

The status is 2 for a usage error, and 1 for unusable settings.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from wva.cli.main import main

pytestmark = pytest.mark.timeout(20)

URL = "PROMETHEUS_BASE_URL"


def refused(capsys, *words):
    """Return the line that a usage error prints."""
    with pytest.raises(SystemExit) as exit_:
        main(list(words))
    assert exit_.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (["run", "--leader-elct"], "--leader-elect"),
        (["--leader-elct"], "--leader-elect"),
        (["run", "--metrics-bind-adress=:8443"], "--metrics-bind-address"),
        (["--leader-elect", "--zap-log-lvel", "debug"], "--zap-log-level"),
        (["run", "--watch-namspace", "a", "b"], "--watch-namespace"),
        (["demo", "--sed", "3"], "--seed"),
    ],
)
def test_an_unknown_flag_names_the_nearest(capsys, words, nearest):
    """The message suggests the most similar flag of the sub-command."""
    assert f"(did you mean {nearest}?)" in refused(capsys, *words)


@pytest.mark.parametrize("words", [["run", "--qqq"], ["run", "word"], ["rum"], ["run", ""], ["run", "--log-level"]])
def test_a_flag_like_no_other_points_to_the_help(capsys, words):
    """WVA suggests no flag when none is similar."""
    assert refused(capsys, *words).startswith("wva")


def test_control_characters_of_a_flag_do_not_reach_the_terminal(capsys):
    """The message is one line without control characters."""
    line = refused(capsys, "run", "--lead\ner-elect\x1b[31m\x07")
    assert line.removesuffix("\n").isprintable()


class _Nothing(BaseHTTPRequestHandler):
    """An API server without objects."""

    def do_GET(self):
        """Answer 404."""
        body = b'{"kind": "Status", "reason": "NotFound", "code": 404}'
        self.send_response(404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Log nothing."""


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """Set an environment without settings, with a cluster that has no ConfigMap."""
    for name in (URL, "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEALTH_PROBE_BIND_ADDRESS", "0")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Nothing) as server:
        path = tmp_path / "kubeconfig"
        path.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\n"
            "contexts: [{name: a, context: {cluster: a, user: a}}]\n"
            f"clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:{server.server_port}'}}}}]\n"
            "users: [{name: a, user: {token: tell-nobody-of-this}}]\n",
            encoding="utf-8",
        )
        monkeypatch.setenv("KUBECONFIG", str(path))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield monkeypatch
        server.shutdown()
        thread.join()


def ended(capsys):
    """Run the controller, assert that it ends with status 1, and return its lines on stderr that are not log lines."""
    assert main(["run"]) == 1
    err = capsys.readouterr().err
    assert "tell-nobody-of-this" not in err
    assert "Traceback" not in err
    return [line for line in err.splitlines() if line.startswith("wva: ")]


@pytest.mark.usefixtures("nowhere")
def test_a_missing_url_is_one_line(capsys):
    """The line names the setting, and the environment and ConfigMap where it can be set."""
    (line,) = ended(capsys)
    assert URL in line
    assert "environment" in line
    assert "ConfigMap workload-variant-autoscaler-system/wva-variantautoscaling-config" in line


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://prometheus:9090", "PROMETHEUS_ALLOW_HTTP"),
        ("prometheus:9090", "expected a URL"),
        ("https://user:tell-nobody-of-this@prometheus", "contains a user"),
        ("https://[", "not a URL"),
        ("https://prometheus:99999", "URL"),
        ("https://a\nb", "expected a URL"),
        ("https://a b", "expected a URL"),
        ("\udcff\udcfe", URL),
    ],
)
def test_a_url_that_cannot_work_is_named_without_its_secret(nowhere, capsys, url, said):
    """The process ends, and the message names the fault."""
    nowhere.setenv(URL, url)
    lines = ended(capsys)
    assert any(said in line for line in lines)


def test_a_token_that_is_no_header_is_not_shown(nowhere, capsys):
    """A token with a line break is refused, because it could add a header."""
    nowhere.setenv(URL, "https://prometheus")
    nowhere.setenv("PROMETHEUS_BEARER_TOKEN", "tell-nobody-of-this\r\nX-Evil: 1")
    assert any("PROMETHEUS_BEARER_TOKEN (hidden)" in line for line in ended(capsys))


@pytest.mark.parametrize("content", [b"", b"[", b"{}", b"\xff\xfe", b"[" * 100_000, b"null", b'{"now":"x"}'])
def test_a_file_that_is_no_recording_is_refused(capsys, tmp_path, content):
    """``wva decide`` prints one line and ends with status 1."""
    path = tmp_path / "recording.json"
    path.write_bytes(content)
    assert main(["decide", str(path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1

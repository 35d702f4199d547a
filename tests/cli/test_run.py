"""``wva run`` as a process: the errors that stop its start, and how it ends."""

from __future__ import annotations

import asyncio
import signal

import aiohttp
import pytest

from tests.cli.conftest import closed_port
from wva.api.crd import definition
from wva.sim.apiserver import EmbeddedApiServer, ServerOptions, StoreOptions, kind_from_definition

SYSTEM = "workload-variant-autoscaler-system"
MAIN = "wva-variantautoscaling-config"
URL = {"PROMETHEUS_BASE_URL": "https://127.0.0.1:1"}
QUIET = {"HEALTH_PROBE_BIND_ADDRESS": "0"}


@pytest.fixture
async def cluster(tmp_path):
    """Return the environment variables that point to an embedded API server."""
    options = ServerOptions(store=StoreOptions(namespaces=("ns", SYSTEM)))
    async with EmbeddedApiServer([kind_from_definition(definition())], options=options) as api:
        yield {"KUBECONFIG": str(api.kubeconfig(tmp_path / "kubeconfig")), **QUIET}


async def test_without_prometheus_it_ends_with_one_line(run, cluster):
    """The line names the key and the places where it can be set."""
    outcome = await run("run", **cluster)
    assert outcome.status == 1
    (line,) = outcome.lines
    assert line.startswith("wva: PROMETHEUS_BASE_URL is not set: ")
    assert "the environment" in line
    assert f"the ConfigMap {SYSTEM}/wva-variantautoscaling-config" in line
    assert "Traceback" not in outcome.err


async def test_without_a_cluster_it_waits_and_says_so(start, closed_cluster, free_port):
    """The probes answer at once. WVA waits: a missing setting may be in the ConfigMap, which it cannot read yet."""
    process = await start("run", KUBECONFIG=str(closed_cluster), HEALTH_PROBE_BIND_ADDRESS=f"127.0.0.1:{free_port}")
    status, text = await answer(f"http://127.0.0.1:{free_port}/readyz")
    assert status == 503
    assert "waiting for the API server" in text
    assert (await answer(f"http://127.0.0.1:{free_port}/healthz"))[0] == 200
    lines = await until_line(process, "waiting_for_api_server")
    assert f"ConfigMap {SYSTEM}/wva-variantautoscaling-config" in lines[-1]
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(10):
        await process.communicate()
    assert process.returncode == 0


async def test_settings_of_the_config_map_count_once_the_cluster_answers(start, tmp_path):
    """WVA reads the missing URL from the ConfigMap, serves the probes at its address, and works."""
    options = ServerOptions(store=StoreOptions(namespaces=("ns", SYSTEM)))
    other = closed_port()
    async with EmbeddedApiServer([kind_from_definition(definition())], options=options) as api:
        data = {**URL, "HEALTH_PROBE_BIND_ADDRESS": f"127.0.0.1:{other}", "LOG_LEVEL": "debug"}
        api.store.create("configmaps", {"metadata": {"name": MAIN, "namespace": SYSTEM}, "data": data})
        process = await start("run", KUBECONFIG=str(api.kubeconfig(tmp_path / "kubeconfig")))
        await until_started(process)
        assert (await answer(f"http://127.0.0.1:{other}/healthz"))[0] == 200
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert process.returncode == 0


async def test_a_config_map_that_may_not_be_read_is_named(start, cluster_without_permission):
    """One line names the missing permission; WVA goes on trying."""
    process = await start("run", KUBECONFIG=str(cluster_without_permission), **URL, **QUIET)
    lines = await until_line(process, "waiting_for_api_server")
    assert "not allowed to read ConfigMap" in lines[-1]
    assert f"get configmaps in namespace {SYSTEM}" in lines[-1]
    assert process.returncode is None


async def test_without_any_kubeconfig_there_is_a_line_for_each(run, environment):
    """The second line names the missing kubeconfig file."""
    outcome = await run("run")
    assert outcome.status == 1
    first, second = outcome.lines
    assert "PROMETHEUS_BASE_URL" in first
    assert f"{environment['HOME']}/.kube/config" in second
    assert "Traceback" not in outcome.err


async def test_a_broken_kubeconfig_is_one_line(run, tmp_path):
    """A kubeconfig that cannot be parsed gives one line and no traceback."""
    path = tmp_path / "broken"
    path.write_text("{[", encoding="utf-8")
    outcome = await run("run", KUBECONFIG=str(path), **URL)
    assert outcome.status == 1
    assert len(outcome.lines) == 1
    assert "Traceback" not in outcome.err


async def test_plain_http_is_refused_unless_allowed(run, cluster):
    """Plain HTTP sends queries and the token unencrypted; the line names both keys."""
    outcome = await run("run", PROMETHEUS_BASE_URL="http://127.0.0.1:1", **cluster)
    assert outcome.status == 1
    (line,) = outcome.lines
    assert "PROMETHEUS_BASE_URL" in line
    assert "PROMETHEUS_ALLOW_HTTP" in line


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"PROMETHEUS_CLIENT_CERT_PATH": "/tls.crt"}, "PROMETHEUS_CLIENT_KEY_PATH"),
        ({"HEALTH_PROBE_BIND_ADDRESS": "nonsense"}, "--health-probe-bind-address"),
        ({"METRICS_BIND_ADDRESS": "8443"}, "--metrics-bind-address"),
        ({"METRICS_BIND_ADDRESS": "127.0.0.1:0", "METRICS_CERT_PATH": "/nonexistent"}, "/nonexistent/tls.crt"),
        ({"LEADER_ELECT": "true", "LEADER_ELECTION_LEASE_DURATION": "10s"}, "--leader-election-lease-duration=10s"),
    ],
)
async def test_what_could_never_work_ends_with_status_1(run, cluster, more, named):
    """One line names the key, flag or file that is wrong."""
    outcome = await run("run", **(cluster | URL | more))
    assert outcome.status == 1
    (line,) = outcome.lines
    assert named in line
    assert "Traceback" not in outcome.err


async def test_a_flag_as_the_first_word_means_run(run, cluster):
    """Manifests of the original start the image with flags only, without a command."""
    outcome = await run("--leader-elect=false", **cluster)
    assert outcome.status == 1
    assert "PROMETHEUS_BASE_URL" in outcome.lines[0]


async def test_everything_that_is_wrong_is_told_at_once(run, cluster):
    """WVA prints one line for each missing file, refused value and wrong address."""
    wrong = {
        "PROMETHEUS_CA_CERT_PATH": "/nonexistent/ca.crt",
        "PROMETHEUS_TOKEN_PATH": "/nonexistent/token",
        "GLOBAL_OPT_INTERVAL": "0s",
        "POOL_GROUP": "inference.example.com",
        "METRICS_BIND_ADDRESS": "8443",
    }
    outcome = await run("run", **(cluster | URL | wrong))
    assert outcome.status == 1
    assert len(outcome.lines) == len(wrong)
    for key, value in wrong.items():
        assert any(value in line for line in outcome.lines), key
    assert "the process does not start with it" in next(line for line in outcome.lines if "POOL_GROUP" in line)


async def test_files_of_tls_do_not_matter_without_verification(start, cluster):
    """With verification off, WVA starts although the CA file is missing."""
    skip = {"PROMETHEUS_TLS_INSECURE_SKIP_VERIFY": "true", "PROMETHEUS_CA_CERT_PATH": "/nonexistent/ca.crt"}
    process = await start("run", **cluster, **URL, **skip)
    await until_started(process)
    assert process.returncode is None


async def test_a_value_that_does_not_parse_is_told_and_survived(start, cluster):
    """The log names the key and the value in force; WVA goes on with the default."""
    process = await start("run", GLOBAL_OPT_INTERVAL="soon", **cluster, **URL)
    log = await until_started(process)
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    (line,) = [line for line in log if "setting_rejected" in line]
    assert "GLOBAL_OPT_INTERVAL" in line
    assert "in force: 60s" in line


async def test_what_has_no_effect_is_one_warning(start, cluster):
    """WVA accepts flags of the original that have no effect, and lists them in one warning."""
    flags = ("--zap-devel=true", "--zap-time-encoding=rfc3339", "--webhook-cert-path=/certs", "--enable-http2=true")
    process = await start("run", *flags, **cluster, **URL)
    log = await until_started(process)
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    (line,) = [line for line in log if "without_effect" in line]
    assert '"level": "warning"' in line
    assert all(flag.partition("=")[0] in line for flag in flags)
    assert "--zap-stacktrace-level" not in line


@pytest.mark.parametrize("name", ["asyncio", "uvloop"])
async def test_it_runs_on_the_event_loop_that_is_asked_for(start, cluster, name):
    """The log names the event loop."""
    process = await start("run", f"--event-loop={name}", **cluster, **URL)
    lines = await until_line(process, "starting")
    assert f'"event_loop": "{name}"' in lines[-1] or f"event_loop={name}" in lines[-1]
    await until_started(process)
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    assert process.returncode == 0


@pytest.mark.parametrize("elect", ["true", "false"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_with_status_0_within_ten_seconds(start, cluster, number, elect):
    """The manifests give the process ten seconds; it ends in time even without Prometheus."""
    process = await start("run", f"--leader-elect={elect}", **cluster, **URL)
    await until_started(process)
    process.send_signal(number)
    async with asyncio.timeout(10):
        out, err = await process.communicate()
    assert process.returncode == 0
    assert out == b""
    assert b"Traceback" not in err
    assert b"never retrieved" not in err


async def until_started(process):
    """Return the log lines up to the one with the event "started"."""
    return await until_line(process, '"event": "started"')


async def until_line(process, words):
    """Return the log lines up to the first with these words."""
    lines = []
    async with asyncio.timeout(60):
        while True:
            line = (await process.stderr.readline()).decode()
            assert line, f"ended early: {lines}"
            lines.append(line)
            if words in line:
                return lines


async def answer(url):
    """Return status and text of a page, once the process listens."""
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url) as response:
                    return response.status, await response.text()
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.02)

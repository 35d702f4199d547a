"""The demand analyzer, the default, on the real servers: what users see, and what WVA does where signals are missing.

The engines carry about four requests per second each within the usual targets.
"""

from __future__ import annotations

import contextlib
import itertools
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from e2e.controlplane.build import PROMETHEUS
from e2e.controlplane.ports import free_port
from e2e.controlplane.prometheus import PrometheusApi
from e2e.load import FleetProcess
from e2e.manifests import MAIN_CONFIG_MAP, ManifestedVariant
from e2e.scene import Launch, Scene
from e2e.serving import answering, pass_on
from wva.sim.fleet.parameters import EngineParameters

ENGINE = EngineParameters(
    alpha_seconds=0.025, beta_seconds_per_sequence=0.00035, prefill_seconds_per_token=0.00012, num_gpu_blocks=3072
)
CHAT = ManifestedVariant(name="chat", cost=5, accelerator="L40S")
STEADY = ManifestedVariant(name="chat", cost=5, accelerator="L40S", replicas=4)
LOW_RATE, HIGH_RATE, NEEDED = 2.0, 14.0, 4
STEADY_RATE = 10.0
LEAST, MOST = 3, 6  # enough replicas for the steady rate; twice as many, since WVA measures imprecisely
AS_INSTALLED = {"GLOBAL_OPT_INTERVAL": "15s"}
GONE_SECONDS = 40.0
"""Pods start within seconds here, so WVA keeps replicas only for the time of a reaction after the demand has gone."""
LEARNING_SECONDS, WATCHED_SECONDS = 75.0, 75.0
SCRAPE_SECONDS = 10


@pytest.mark.timeout(900)
def test_growth_and_shrink_as_installed(scene: Scene):
    """Replicas come in one step with the load, users get their answers, and after the load all but one go."""
    scene.configure(MAIN_CONFIG_MAP, AS_INSTALLED)
    fleet = _started(scene, CHAT, LOW_RATE)
    time.sleep(LEARNING_SECONDS)
    assert not scene.history.changes(), scene.report()

    fleet.offer(HIGH_RATE)
    scene.wait(lambda: scene.ready_replicas("chat") >= NEEDED, timeout_seconds=60, what="growth with the load")
    time.sleep(LEARNING_SECONDS)  # WVA removes the replicas that it ordered for the backlog
    fleet.offer(LOW_RATE)
    began = time.monotonic()
    scene.wait(lambda: scene.replicas("chat") == 1, timeout_seconds=300, what="shrink after the load")
    falls = [each for each in scene.history.changes() if each.old >= NEEDED > each.new]
    assert falls, scene.history
    assert all(each.at_seconds - began >= 0.9 * GONE_SECONDS for each in falls), scene.report()


def test_a_new_controller_keeps_what_the_load_needs(scene: Scene):
    """It has read from Prometheus what the former one had learned, and stays within one replica of its number."""
    _started(scene, STEADY, STEADY_RATE)
    time.sleep(LEARNING_SECONDS)
    (first,) = scene.controllers
    before = first.metrics().value("wva_desired_replicas", variant_name="chat")
    first.process.stop()
    second = scene.start_controller(name="second")
    began = time.monotonic()
    _assert_kept(scene)
    seen = [each.desired["chat"] for each in scene.history.observations(since_seconds=began) if "chat" in each.desired]
    assert before is not None
    assert max(abs(number - before) for number in seen) <= 1, scene.report()
    read = second.metrics().value("wva_prometheus_queries_total", query="past_pods", result="success")
    assert read is not None
    assert read >= 2, "the time before the process has been asked about"


def test_an_engine_that_restarts_is_no_lull(scene: Scene):
    """The counters of the restarted engine begin at zero. WVA does not take this for a lull in the load."""
    fleet = _started(scene, STEADY, STEADY_RATE)
    time.sleep(LEARNING_SECONDS)
    fleet.restart_engine(STEADY)
    _assert_kept(scene)


def test_pods_without_counters_are_scaled_all_the_same(scene: Scene):
    """Old engines have no counters. Their gauges alone tell WVA that the load is too high."""
    scene.dropped_series = "vllm:.+_(total|sum|count|bucket)"
    fleet = _started(scene, CHAT, LOW_RATE)
    time.sleep(LEARNING_SECONDS)
    assert not scene.history.changes(), scene.report()
    fleet.offer(HIGH_RATE)
    scene.wait(lambda: scene.ready_replicas("chat") >= NEEDED, timeout_seconds=150, what="growth by the gauges")


def test_two_replicas_of_prometheus_tell_of_one_load(scene: Scene, launch: Launch, tmp_path: Path):
    """Queries alternate between both.

    Their scrapes differ, so counters seem to fall. WVA still measures the true load.
    """
    scene.scrape_seconds = SCRAPE_SECONDS
    with _second_prometheus(launch, tmp_path) as second:
        plane = scene.plane
        context = ssl.create_default_context(cafile=str(plane.layout.authority))
        with _alternating([(plane.prometheus_api.url, context), (second, None)]) as url:
            environment = {"PROMETHEUS_BASE_URL": url, "PROMETHEUS_ALLOW_HTTP": "true"}
            _started(scene, STEADY, STEADY_RATE, environment=environment, jobs=tmp_path / "jobs")
            time.sleep(LEARNING_SECONDS)
            _assert_kept(scene)


def _started(
    scene: Scene,
    variant: ManifestedVariant,
    rate: float,
    *,
    environment: Mapping[str, str] | None = None,
    jobs: Path | None = None,
) -> FleetProcess:
    """Start a fleet with a load, and a controller that has measured it."""
    fleet = scene.fleet()
    if jobs is not None:
        job = {"job_name": "pods", "honor_labels": True, "static_configs": [{"targets": [fleet.address]}]}
        (jobs / "pods.yaml").write_text(yaml.safe_dump({"scrape_configs": [job]}), encoding="utf-8")
        PrometheusApi((jobs / "url").read_text()).reload()
    fleet.add(variant, ENGINE)
    scene.deploy(variant)
    scene.wait_ready(variant)
    fleet.offer(rate)
    scene.declare(variant)
    scene.scale_by_keda(variant)
    scene.start_controller(environment=environment)
    scene.wait_measured(variant, timeout_seconds=60)
    return fleet


def _assert_kept(scene: Scene) -> None:
    """Assert that the numbers published from now on are enough for the load, and not far more than that."""
    began = time.monotonic()
    time.sleep(WATCHED_SECONDS)
    numbers = [
        each.desired["chat"] for each in scene.history.observations(since_seconds=began) if "chat" in each.desired
    ]
    assert numbers
    assert min(numbers) >= LEAST, scene.report()
    assert max(numbers) <= MOST, scene.report()


@contextlib.contextmanager
def _second_prometheus(launch: Launch, directory: Path) -> Iterator[str]:
    """Run a Prometheus of its own; its jobs are files below ``jobs``."""
    jobs = directory / "jobs"
    jobs.mkdir()
    config = {
        "global": {
            "scrape_interval": f"{SCRAPE_SECONDS}s",
            "scrape_timeout": "5s",
            "external_labels": {"replica": "b"},
        },
        "scrape_config_files": [f"{jobs}/*.yaml"],
    }
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    process = launch(
        "second-prometheus",
        [
            str(PROMETHEUS.binary("prometheus")),
            f"--config.file={directory / 'prometheus.yaml'}",
            f"--web.listen-address={address}",
            "--web.enable-lifecycle",
            f"--storage.tsdb.path={directory / 'data'}",
            "--log.level=warn",
        ],
    )
    api = PrometheusApi(f"http://{address}")
    process.wait_ready(api.is_ready)
    (jobs / "url").write_text(api.url)
    yield api.url


@contextlib.contextmanager
def _alternating(servers: list[tuple[str, ssl.SSLContext | None]]) -> Iterator[str]:
    """Pass each query on to the next of the servers."""
    turns = itertools.cycle(servers)

    def answer(path: str, form: bytes, _: str) -> tuple[int, bytes]:
        server, context = next(turns)
        return pass_on(f"{server}{path}", form, context)

    with answering(answer) as url:
        yield url

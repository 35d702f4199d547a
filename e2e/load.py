"""What the pods of a test report: a simulated fleet, or numbers that the test sets.

Pods run nothing here, so a process (or a thread) speaks for all Ready pods of a namespace on one page. Both sources
follow the pods through ``following``, as a service discovery would.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from e2e.controlplane.api import Body, KubernetesApi, RefusedRequestError
from e2e.controlplane.ports import free_port
from e2e.controlplane.processes import ServerProcess
from e2e.manifests import MODEL, ManifestedVariant
from e2e.scrape_target import ServedPage
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.traffic.lengths import TokenLengths

PodsByVariant = Mapping[str, Sequence[str]]
_FOLLOW_SECONDS = 0.5
_TIMEOUT_SECONDS = 5.0


@contextlib.contextmanager
def following(api: KubernetesApi, namespace: str, *, take: Callable[[PodsByVariant], None]) -> Iterator[None]:
    """Hand the names of the Ready pods of each variant to ``take``, twice a second, from a thread inside the block."""
    stop = threading.Event()
    errors: list[Exception] = []

    def run() -> None:
        while not stop.wait(_FOLLOW_SECONDS):
            try:
                take(ready_pods(api.list("Pod", namespace=namespace)))
            except (OSError, RefusedRequestError, http.client.HTTPException):  # a server restarts: look again
                continue
            except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to; the test's end does it
                errors.append(error)
                return

    thread = threading.Thread(target=run, name=f"pods of {namespace}")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if errors:
        raise errors[0]


def ready_pods(pods: Sequence[Body]) -> PodsByVariant:
    """Return the names of the Ready pods by variant (the label ``app``), without the terminating ones.

    Pods without that label belong to no variant: a controller may live in the same namespace.
    """
    found: dict[str, list[str]] = {}
    for pod in pods:
        metadata = pod["metadata"]
        if "app" not in metadata["labels"]:
            continue
        names = found.setdefault(metadata["labels"]["app"], [])
        if is_ready(pod) and "deletionTimestamp" not in metadata:
            names.append(metadata["name"])
    return found


def is_ready(pod: Body) -> bool:
    """Whether a pod has the condition Ready."""
    conditions = pod["status"].get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


@dataclass(frozen=True, slots=True)
class PodReport:
    """What each pod of a variant reports; ``finished`` is a counter."""

    kv_usage: float
    waiting: int = 0
    running: int = 0
    finished: int = 0


class FixedMetrics:
    """Every Ready pod of a variant reports the numbers that the test set last."""

    def __init__(self, target: ServedPage, *, namespace: str) -> None:
        """Write the page of ``target``."""
        self._target = target
        self._namespace = namespace
        self._readings: dict[str, tuple[str, PodReport]] = {}
        self._pods: PodsByVariant = {}
        self._lock = threading.Lock()

    @property
    def port(self) -> int:
        """Return the port of loopback at which the page is."""
        return int(self._target.address.rpartition(":")[2])

    def set(self, variant: str, reading: PodReport, *, model: str = MODEL) -> None:
        """Let the pods of a variant report this from now on."""
        with self._lock:
            self._readings[variant] = (model, reading)
            self._write()

    def take(self, pods: PodsByVariant) -> None:
        """Take the Ready pods."""
        with self._lock:
            self._pods = pods
            self._write()

    def _write(self) -> None:
        page = []
        for variant, (model, reading) in sorted(self._readings.items()):
            for pod in self._pods.get(variant, ()):
                labels = f'{{namespace="{self._namespace}",pod="{pod}",model_name="{model}"}}'
                page += [
                    f"vllm:kv_cache_usage_perc{labels} {reading.kv_usage}\n",
                    f"vllm:num_requests_waiting{labels} {reading.waiting}\n",
                    f"vllm:num_requests_running{labels} {reading.running}\n",
                    f"vllm:request_success_total{labels} {reading.finished}\n",
                ]
        self._target.text = "".join(sorted(page))


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many tokens prompts and answers have."""

    prompt: TokenLengths
    output: TokenLengths


class FleetProcess:
    """A process with the simulated fleet, steered over HTTP."""

    def __init__(self, process: ServerProcess, port: int, *, namespace: str) -> None:
        """Take a process that has been started. It draws its requests by ``namespace``."""
        self._process = process
        self._namespace = namespace
        self._variants: set[str] = set()
        self._said: dict[str, Sequence[str]] = {}
        self.address = f"127.0.0.1:{port}"

    @staticmethod
    def command(port: int) -> list[str]:
        """Return the command line of the process."""
        return [sys.executable, "-m", "wva.sim.fleet", "--port", str(port), "--seed", "1"]

    @staticmethod
    def free_port() -> int:
        """Return a port for the process."""
        return free_port()

    def wait_ready(self) -> None:
        """Wait until it answers."""
        self._process.wait_ready(lambda: self._request("GET", "/metrics") is not None)

    def add(self, variant: ManifestedVariant, parameters: EngineParameters) -> None:
        """Add a variant with the parameters of its engines."""
        body = {
            "namespace": self._namespace,
            "deployment": variant.name,
            "model": variant.model,
            "accelerator": variant.accelerator,
            "parameters": asdict(parameters),
        }
        self._request("POST", "/variants", body)
        self._variants.add(variant.name)

    def offer(self, requests_per_second: float, *, model: str = MODEL, lengths: Lengths | None = None) -> None:
        """Offer this load to a model from now on; without ``lengths`` its requests stay as long as they are."""
        body = {"namespace": self._namespace, "model": model, "rate": requests_per_second}
        self._request("POST", "/load", body | (asdict(lengths) if lengths else {}))

    def offer_points(self, points: Sequence[tuple[float, float]], *, model: str = MODEL) -> None:
        """Offer a load given as (seconds from now, requests per second), linear between the points."""
        body = {"namespace": self._namespace, "model": model, "points": [list(point) for point in points]}
        self._request("POST", "/load", body)

    def summary(self, *, since_seconds: float = 0.0) -> dict[str, Any]:
        """Return the summary of the one model, over the requests that were served since a time of the fleet."""
        (model,) = json.loads(self._request("GET", f"/summary?since={since_seconds}"))
        assert isinstance(model, dict)
        return model

    def take(self, pods: PodsByVariant) -> None:
        """Take the Ready pods."""
        for variant in sorted(self._variants):
            names = sorted(pods.get(variant, ()))
            if self._said.get(variant) != names:
                self._tell(variant, names)

    def restart_engine(self, variant: ManifestedVariant) -> None:
        """Let the engine of one pod start anew within it: it loses its requests, and counts from zero."""
        names = self._said[variant.name]
        self._tell(variant.name, names[1:])
        self._tell(variant.name, names)

    def _tell(self, variant: str, names: Sequence[str]) -> None:
        body = {"namespace": self._namespace, "deployment": variant, "pods": names}
        self._request("POST", "/pods", body)
        self._said[variant] = names

    def _request(self, method: str, path: str, body: object = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}{path}", data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
                content: bytes = response.read()
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from error
        return content

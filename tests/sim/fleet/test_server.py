"""The fleet over HTTP, with a clock that the test moves."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import urllib.request

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestClient, TestServer

from wva.sim.fleet.fleet import Fleet
from wva.sim.fleet.server import FleetServer


class StandingClock:
    """A clock that stands still until the test changes ``seconds`` or wakes a sleeper."""

    def __init__(self):
        """Start at 5000 s."""
        self.seconds = 5000.0
        self.naps = asyncio.Queue()

    def now(self):
        """Return the time."""
        return self.seconds

    def monotonic(self):
        """Return the time."""
        return self.seconds

    async def sleep(self, seconds):
        """Wait until the test puts a factor in ``naps``, and let ``seconds`` pass as many times."""
        self.seconds += await self.naps.get() * seconds

    async def wait(self, event, timeout_seconds):
        """Fail, because the server waits for no event."""
        raise AssertionError(event, timeout_seconds)


@pytest.fixture
def clock():
    """Return the clock that the test moves."""
    return StandingClock()


@pytest.fixture
async def client(clock):
    """Return a client of a server with one variant and 10 requests per second."""
    server = FleetServer(Fleet((), loads={}, seed=1), clock=clock)
    async with TestClient(TestServer(server.application())) as client:
        await post(client, "/variants", namespace="ns", deployment="d", model="m", accelerator="H100")
        await post(client, "/load", namespace="ns", model="m", rate=10)
        yield client


async def post(client, path, *, status=204, **body):
    """Post a body and expect a status."""
    async with client.post(path, json=body) as response:
        assert response.status == status, await response.text()
        return await response.text()


async def get(client, path, *, status=200):
    """Return a page and expect a status."""
    async with client.get(path) as response:
        assert response.status == status
        return await response.text()


def value(page, series):
    """Return the value of a series that occurs once."""
    (found,) = [line.rsplit(" ", 1)[1] for line in page.splitlines() if line.startswith(series + "{")]
    return float(found)


async def test_fleet_follows_the_clock(client, clock):
    """After a minute of the clock, the fleet has served a minute of load."""
    await post(client, "/pods", namespace="ns", deployment="d", pods=["p-1"])
    clock.seconds += 60
    page = await get(client, "/metrics")
    assert value(page, "vllm:num_requests_running") > 10
    assert 'namespace="ns",pod="p-1"' in page
    assert 400 < value(page, "vllm:time_to_first_token_seconds_count") < 700
    assert await get(client, "/metrics") == page
    own = await get(client, "/pods/ns/p-1/metrics")
    assert value(own, "vllm:num_requests_running") == value(page, "vllm:num_requests_running")


async def test_content_type_is_the_text_format(client):
    """The page has the type of the text format, because Prometheus 3 refuses an unknown type."""
    async with client.get("/metrics") as response:
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_load_can_be_changed_on_the_fly(client, clock):
    """A new rate, or new points that count from now, replace the load."""
    clock.seconds += 10
    await post(client, "/load", namespace="ns", model="m", rate=0)
    (before,) = await summary(client)
    clock.seconds += 100
    (silent,) = await summary(client)
    assert before["arrived"] == silent["arrived"] > 50
    await post(client, "/load", namespace="ns", model="m", points=[[0, 0], [100, 20]])
    clock.seconds += 100
    (risen,) = await summary(client)
    assert 800 < risen["arrived"] - silent["arrived"] < 1200
    assert risen["offered_per_second"] == pytest.approx(14, abs=2), "from 8 to 20 in the last minute"
    clock.seconds += 100
    (high,) = await summary(client)
    assert high["offered_per_second"] == pytest.approx(20, abs=2)


async def test_load_can_have_other_lengths(client, clock):
    """Lengths stay until others are given, and the engines count the drawn lengths."""
    await post(client, "/pods", namespace="ns", deployment="d", pods=["p-1"])
    short = {"mean_tokens": 8, "sigma": 0}
    await post(client, "/load", namespace="ns", model="m", rate=5, prompt=short, output=short)
    await post(client, "/load", namespace="ns", model="m", rate=10)
    clock.seconds += 60
    page = await get(client, "/metrics")
    for kind in ("prompt", "generation"):
        requests = value(page, f"vllm:request_{kind}_tokens_count")
        assert requests > 400
        assert value(page, f"vllm:request_{kind}_tokens_sum") == 8 * requests


async def summary(client, query=""):
    """Return the summary."""
    async with client.get("/summary" + query) as response:
        return await response.json()


async def test_summary_can_be_limited_to_a_span(client, clock):
    """``since`` is in seconds since the start of the server."""
    await post(client, "/pods", namespace="ns", deployment="d", pods=["p-1"])
    clock.seconds += 100
    (everything,), (recent,) = await summary(client), await summary(client, "?since=90")
    assert everything["model"] == ["ns", "m"]
    assert 0 < recent["served"]["requests"] < everything["served"]["requests"]
    assert everything["variants"][0]["ready"] == 1


async def test_gateway_pages(client, clock):
    """The pages of one namespace and of all have the queue of waiting requests."""
    clock.seconds += 30
    one, every = await get(client, "/epp/ns/metrics"), await get(client, "/epp/metrics")
    name = "inference_extension_flow_control_queue_size"
    assert value(one, name) == value(every, name) > 100


async def test_faults_come_and_go(client):
    """The page of a broken pod answers 503 until it is repaired."""
    await post(client, "/pods", namespace="ns", deployment="d", pods=["p-1"])
    await post(client, "/faults", namespace="ns", pod="p-1", mode="no-metrics")
    await get(client, "/pods/ns/p-1/metrics", status=503)
    await post(client, "/faults", namespace="ns", pod="p-1")
    await get(client, "/pods/ns/p-1/metrics")


async def test_variant_with_own_parameters(client):
    """Parameters override the presets."""
    parameters = {
        "alpha_seconds": 0.01,
        "beta_seconds_per_sequence": 0.001,
        "prefill_seconds_per_token": 0.0001,
        "num_gpu_blocks": 777,
    }
    await post(client, "/variants", namespace="ns", deployment="own", model="m", accelerator="X", parameters=parameters)
    await post(client, "/pods", namespace="ns", deployment="own", pods=["x-1"])
    assert 'num_gpu_blocks="777"' in await get(client, "/pods/ns/x-1/metrics")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/load", {"namespace": "ns", "model": "m"}, 400),
        ("/load", {"namespace": "ns", "model": "m", "rate": -1}, 400),
        ("/load", {"namespace": "ns", "model": "m", "rates": 1}, 400),
        ("/load", {"namespace": "ns", "model": "m", "points": [[0, 1e6], [3600, 1e6]]}, 400),
        ("/load", {"namespace": "ns", "model": "m", "rate": 1, "prompt": {"mean_tokens": 0}}, 400),
        ("/pods", {"namespace": "ns", "deployment": "nope", "pods": []}, 404),
        ("/faults", {"namespace": "ns", "pod": "nope", "mode": "nan"}, 404),
        ("/faults", {"namespace": "ns", "pod": "nope", "mode": "odd"}, 400),
        ("/variants", {"namespace": "ns", "deployment": "d2", "model": "m", "accelerator": "abacus"}, 404),
    ],
)
async def test_bad_bodies_are_explained(client, path, body, status):
    """A body that cannot be read gets 400, an unknown object 404, with the reason."""
    assert await post(client, path, status=status, **body)


async def test_tick_keeps_up_without_scrapes(clock):
    """Between scrapes the fleet follows the clock once per tick."""
    fleet = Fleet((), loads={})
    server = FleetServer(fleet, clock=clock)
    async with asyncio.TaskGroup() as tasks, server.serving(tasks) as port:
        clock.naps.put_nowait(90)
        for _ in range(5):
            await asyncio.sleep(0)
        assert fleet.now_seconds == 90
        async with ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
            assert response.status == 200


def test_process_tells_its_port_and_ends_on_signal():
    """``python -m wva.sim.fleet`` prints its port, serves on it, and ends with status 0 on SIGTERM."""
    with subprocess.Popen([sys.executable, "-m", "wva.sim.fleet"], stdout=subprocess.PIPE, text=True) as process:
        try:
            port = int(process.stdout.readline())
            with contextlib.closing(urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)) as page:
                assert page.status == 200
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0

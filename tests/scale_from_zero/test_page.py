"""What the controller takes from the page of an endpoint picker, and how it gets through a long one."""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.scale_from_zero.pages import read_page
from wva.kube.cache import Store
from wva.scale_from_zero.gateway import GatewayQueues, _Picker
from wva.scale_from_zero.page import (
    ENOUGH_BYTES,
    MAX_MODELS,
    QUEUE_SIZE_METRICS,
    UNNAMED,
    FlowControl,
    PickerPageReader,
)

RECORDED = Path(__file__).parents[1] / "golden" / "data" / "pages" / "picker"
LLM_D, GAIE = QUEUE_SIZE_METRICS
ERRORS = "inference_objective_request_error_total"
NO_POD = 'error_code="ServiceUnavailable"'
ON, OFF, UNKNOWN = FlowControl.ON, FlowControl.OFF, FlowControl.UNKNOWN

PAGES = {
    "epp12-idle": ({}, {}, UNKNOWN),
    "epp12-queued": ({}, {"m/chat": 3.0}, OFF),
    "epp12-after": ({}, {"m/chat": 3.0}, OFF),
    "epp13-idle": ({}, {}, UNKNOWN),
    "epp13-queued": ({"m/chat": 3.0}, {}, ON),
    "epp13-adapter": ({"my-lora-adapter": 2.0}, {}, ON),
    "epp13-after": ({}, {}, ON),
}
"""By recorded page: what waits, what was refused, and whether flow control is on."""


def flow(number, *, model="m", waiting=0):
    """Return what a real picker (GAIE 1.3.0) shows of one value of the fairness header, about 4.5 kB."""
    labels = f'fairness_id="client-{number:06}",inference_pool="pool",model_name="{model}"'
    more = f'outcome="Dispatched",priority="0",target_model_name="{model}"'
    name = "inference_extension_flow_control_request_queue_duration_seconds"
    buckets = "".join(f'{name}_bucket{{{labels},{more},le="{number / 100}"}} 1\n' for number in range(18))
    queue = f'{GAIE}{{{labels},priority="0",target_model_name="{model}"}} {waiting}\n'
    return queue, f"{buckets}{name}_sum{{{labels},{more}}} 0.1\n{name}_count{{{labels},{more}}} 1\n"


def page_of(flows):
    """Return a page of flows as a real picker sorts it: the queues before the histograms."""
    queues, histograms = zip(*flows, strict=True)
    return f"# HELP a b\n{''.join(queues)}{''.join(histograms)}go_goroutines 5\n"


def test_every_recorded_page_is_expected():
    """Each page that was recorded from a real picker is read by the test below."""
    assert {file.stem for file in RECORDED.iterdir()} == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("piece_bytes", [65536, 1000, 7])
def test_a_recorded_page(name, piece_bytes):
    """A page of a real picker says the same in pieces of any size."""
    page = read_page((RECORDED / f"{name}.txt").read_bytes(), piece_bytes=piece_bytes)
    assert (page.waiting, page.refused, page.flow_control) == PAGES[name]


@pytest.mark.parametrize(
    ("page", "waiting"),
    [
        (f'{LLM_D}{{model_name="m"}} 2\n', 2.0),
        (f'{GAIE}{{model_name="m"}} 2\n', 2.0),
        (f'{GAIE}{{model_name="m"}} 3\n{LLM_D}{{model_name="m"}} 2\n', 2.0),
        (f'{LLM_D}{{model_name="m"}} 2\n{GAIE}{{model_name="m"}} 3\n', 2.0),
        (f'{LLM_D}{{model_name="m"}} 0\n{GAIE}{{model_name="m"}} 3\n', None),
    ],
)
def test_a_request_under_two_names_counts_once(page, waiting):
    """The newer name counts where the page has it."""
    assert read_page(page).waiting.get("m") == waiting


@pytest.mark.parametrize(
    ("page", "flow_control"),
    [
        ("inference_extension_info{} 1\n", UNKNOWN),
        ('a 1\ninference_objective_request_total{model_name="m"} 1\n', OFF),
        ('a 1\nllm_d_epp_request_total{model_name="m"} 1\n', OFF),
        (f'a 1\n{ERRORS}{{{NO_POD},model_name="m"}} 1\n', OFF),
        (f'a 1\n{ERRORS}{{error_code="BadRequest",model_name="m"}} 1\n', UNKNOWN),
        ("a 1\nllm_d_epp_flow_control_dispatch_cycle_duration_seconds_count 5\n", ON),
        ('a 1\ninference_objective_request_total{model_name="m"} 1\n' + flow(1)[1], ON),
        (f'{GAIE}{{fairness_id="f",priority="0"}} 0\n', ON),
    ],
)
def test_a_page_without_queues_tells_whether_flow_control_is_on(page, flow_control):
    """A picker that has served or refused requests and shows nothing of flow control has it off."""
    assert read_page(page).flow_control is flow_control


@pytest.mark.parametrize(
    ("page", "refused"),
    [
        (f'{ERRORS}{{{NO_POD},model_name="a",target_model_name="b"}} 4\n', {"b": 4.0}),
        (f'{ERRORS}{{{NO_POD},model_name="a"}} 1e10\n', {"a": 1e10}),
        (f'{ERRORS}{{error_code="BadRequest",model_name="a"}} 4\n', {}),
        (
            f'llm_d_epp_request_error_total{{{NO_POD},model_name="a"}} 4\n{ERRORS}{{{NO_POD},model_name="a"}} 5\n',
            {"a": 4.0},
        ),
        (f'{GAIE}{{fairness_id="f"}} 1\n{ERRORS}{{{NO_POD},model_name="a"}} 4\n', {"a": 4.0}),
        (f'{GAIE}{{fairness_id=",model_name=",x="y"}} 0\n{ERRORS}{{{NO_POD},model_name="a"}} 4\n', {"a": 4.0}),
        (f'{GAIE}{{model_name="a"}} 0\n{ERRORS}{{{NO_POD},model_name="a"}} 4\n', {}),
    ],
)
def test_refused_requests_count_where_no_queue_has_the_names_of_models(page, refused):
    """Only refusals for want of a pod count. A picker that holds requests refuses what it has held before."""
    assert read_page(page).refused == refused


def test_a_thousand_values_of_a_header_hide_nothing():
    """The page has 4.5 MB; before, 208 values made a page too long, and scale from zero was off for ever."""
    page = page_of([flow(number) for number in range(1000)] + [flow(1000, waiting=2)])
    assert len(page) > 4_000_000
    assert read_page(page).waiting == {"m": 2.0}


def test_of_a_long_page_no_more_is_read_than_its_queues():
    """The histograms after the queues are of no use."""
    page = page_of([flow(number, waiting=1) for number in range(1000)]).encode()
    reader = PickerPageReader()
    for start in range(0, len(page), 8192):
        reader.feed(page[start : start + 8192])
        if reader.enough:
            break
    assert ENOUGH_BYTES < reader.size < ENOUGH_BYTES + 2 * 8192
    assert reader.end().waiting == {"m": 1000.0}


@pytest.mark.parametrize("spare", [0, 100])
def test_what_is_beyond_the_bounds_counts_without_a_name(spare):
    """Neither many models nor long names make a page an error, since clients choose both."""
    lines = [f'{GAIE}{{model_name="m{number}"}} 1\n' for number in range(MAX_MODELS + spare)]
    lines.append(f'{GAIE}{{model_name="{"x" * 1000}"}} 1\n')
    page = read_page("".join(lines))
    assert page.waiting[UNNAMED] == spare + 1
    assert len(page.waiting) == MAX_MODELS + 1
    assert sum(page.waiting.values()) == MAX_MODELS + spare + 1


def test_names_are_looked_for_in_a_mebibyte_of_lines():
    """The lines after it count without a name."""
    line = f'{GAIE}{{fairness_id="{"f" * 1000}",model_name="m"}} 1\n'
    page = read_page(line * 2000)
    assert sum(page.waiting.values()) == 2000
    assert page.waiting[UNNAMED] > 900


class _Session:
    """An HTTP client that gets the same page from everywhere."""

    def __init__(self, page):
        self.page = page

    @asynccontextmanager
    async def get(self, _url, **_):
        """Answer in pieces."""
        yield SimpleNamespace(status=200, headers={}, content=self)

    async def iter_chunked(self, size):
        """Yield the page."""
        for start in range(0, len(self.page), size):
            yield self.page[start : start + size]


async def test_long_pages_do_not_hold_the_loop():
    """32 pages of 1,018 KiB that are slow to parse leave the loop to others after 50 ms of CPU time at most."""
    label = "\\\\" * 7_000
    line = f'{GAIE}{{model_name="m",x="{label}"}} 1\n'.encode()
    page = line * (1018 * 1024 // len(line))
    queues = GatewayQueues(Store(), client=None, token=str)
    queues._session = _Session(page)
    gc.collect()  # not in the middle of the measurement
    held, last = 0.0, time.thread_time()
    reading = [
        asyncio.create_task(queues._read(f"http://{n}", asyncio.Semaphore(10), _Picker({}, 1, 0.0))) for n in range(32)
    ]
    while not all(task.done() for task in reading):
        await asyncio.sleep(0)
        now = time.thread_time()
        held, last = max(held, now - last), now
    assert all(task.result()[1].waiting for task in reading)
    assert held < 0.05

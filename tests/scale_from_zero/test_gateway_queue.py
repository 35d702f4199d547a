"""How WVA reads the requests that wait at a gateway, and what it does when that fails."""

from __future__ import annotations

import asyncio
import gzip
import os
import ssl
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest
import trustme
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from tests.scale_from_zero.pages import read_page
from tests.timing import times_as_long
from wva.api.core import Pod, Service
from wva.api.kinds import SERVICES
from wva.collect.pools import Pool
from wva.kube.cache import Store
from wva.kube.errors import NotFound
from wva.scale_from_zero import gateway
from wva.scale_from_zero.gateway import MAX_PODS, GatewayError, GatewayQueues
from wva.scale_from_zero.page import QUEUE_SIZE_METRICS

POOL = Pool("ns", "pool", "epp")
LLM_D, QUEUE_SIZE_METRIC = QUEUE_SIZE_METRICS


def line(model="m", count="3", *, metric=QUEUE_SIZE_METRIC, label="target_model_name"):
    """Return one sample."""
    return f'{metric}{{fairness_id="f",{label}="{model}"}} {count}\n'


class Picker:
    """An endpoint picker on 127.0.0.1, with one Service and its pods."""

    def __init__(self):
        """Answer one waiting request."""
        self.answer = web.Response(text=line())
        self.requests = []
        self.asked_for_service = 0
        self.service_error = None
        self.pods = Store()
        self.port = 0
        self.ports = None
        self.port_of = {}
        self.selector = {"app": "epp"}
        self.token = ""
        self.ca_path = ""
        self.tls = None

    async def handle(self, request):
        """Send the answer that the test has set."""
        self.requests.append(request)
        answer = self.answer
        if callable(answer):
            return await answer(request)
        return web.Response(status=answer.status, body=answer.body, headers=dict(answer.headers))

    async def get(self, resource, key):
        """Return the Service."""
        assert resource is SERVICES
        self.asked_for_service += 1
        if self.service_error is not None:
            raise self.service_error
        port = self.port_of.get(key.namespace, self.port)
        ports = self.ports if self.ports is not None else [{"name": "http-metrics", "port": 1, "targetPort": port}]
        metadata = {"namespace": key.namespace, "name": key.name}
        return msgspec.convert({"metadata": metadata, "spec": {"selector": self.selector, "ports": ports}}, Service)

    def pod(self, name="epp-0", *, ip="127.0.0.1", ready=True, app="epp", namespace="ns"):
        """Put a pod of the picker into the cache."""
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        metadata = {"namespace": namespace, "name": name, "labels": {"app": app}}
        body = {"metadata": metadata, "status": {"podIP": ip, "conditions": conditions}}
        self.pods.upsert(msgspec.convert(body, Pod))

    @asynccontextmanager
    async def reader(self, **limits):
        """Serve the page of the picker, and yield a reader of it."""
        app = web.Application()
        app.router.add_get("/metrics", self.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self.tls)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            with pytest.MonkeyPatch.context() as patch:
                for name, limit in limits.items():
                    patch.setattr(gateway, name, limit)
                options = {"client": self, "token": lambda: self.token, "ca_path": self.ca_path}
                async with GatewayQueues(self.pods, **options) as reader:
                    yield reader
        finally:
            await runner.cleanup()


@pytest.fixture
def picker():
    """Return a picker."""
    return Picker()


async def test_the_queue_of_every_ready_pod_counts(picker):
    """WVA adds the queues up. It does not ask pods that are not Ready, or that the Service does not select."""
    picker.pod("epp-0")
    picker.pod("epp-1")
    picker.pod("epp-2", ready=False)
    picker.pod("web-0", app="web")
    picker.pod("epp-3", namespace="other")
    async with picker.reader() as reader:
        assert (await reader.waiting(POOL)).waiting == {"m": 6.0}
    assert len(picker.requests) == 2


async def test_a_pod_that_does_not_answer_hides_no_other(picker):
    """WVA counts the queue of the pod that answers."""
    picker.pod("epp-0")
    picker.pod("epp-1", ip="127.0.0.2")
    picker.pod("epp-2", ip="")
    async with picker.reader() as reader:
        assert (await reader.waiting(POOL)).waiting == {"m": 3.0}


async def test_the_token_is_read_for_each_request(picker):
    """WVA uses a rotated token at once, and sends no header without a token."""
    picker.pod()
    async with picker.reader() as reader:
        for token in ("", "first", "second"):
            picker.token = token
            await reader.waiting(POOL)
    headers = [request.headers.get("Authorization") for request in picker.requests]
    assert headers == [None, "Bearer first", "Bearer second"]


@pytest.mark.parametrize("status", [401, 403, 404, 500, 302])
async def test_another_status_is_an_error(picker, status):
    """WVA follows no redirect, because it could send the token to any server."""
    picker.pod()
    picker.token = "s3cret"
    picker.answer = web.Response(status=status, headers={"Location": "http://127.0.0.1:1/"})
    async with picker.reader() as reader:
        with pytest.raises(GatewayError, match=str(status)) as caught:
            await reader.waiting(POOL)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        b"<html></html>",
        b"<html>\n" + line().encode() + b'x{y="',
        b'{"metrics": []}',
        b"please log in",
        b"404 page not found",
        b"\xff\xfe",
        line(count="x").encode(),
    ],
)
async def test_what_is_no_exposition_is_an_error(picker, body):
    """WVA refuses a page of a proxy, bytes that are no text and values that are no numbers, and quotes none of them."""
    picker.pod()
    picker.answer = web.Response(body=body)
    async with picker.reader() as reader:
        with pytest.raises(GatewayError, match=r"sent (something|a line) [a-z ]+, expected metrics as text$"):
            await reader.waiting(POOL)


@pytest.mark.parametrize(
    "body", ["", "\n", "# HELP a b\n", "a 1\n", 'a{b="}c"} NaN\n', "\n a:b\t+Inf\n", "up -1 170\n"]
)
async def test_metrics_of_anything_else_are_a_queue_in_which_nobody_waits(picker, body):
    """The metric does not exist before the first request has waited."""
    picker.pod()
    picker.answer = web.Response(body=body)
    async with picker.reader() as reader:
        assert (await reader.waiting(POOL)).waiting == {}


@pytest.mark.parametrize(("token", "words"), [("", "is not set"), ("s3cret", "is not accepted")])
async def test_a_refusal_names_the_setting_of_the_token(picker, token, words):
    """The error says whether the token is missing or not accepted."""
    picker.pod()
    picker.token = token
    picker.answer = web.Response(status=401)
    async with picker.reader() as reader:
        with pytest.raises(GatewayError, match=f"401: the token of EPP_METRIC_READER_BEARER_TOKEN {words}$"):
            await reader.waiting(POOL)


@pytest.mark.parametrize(
    ("status", "token", "words"),
    [
        (
            500,
            "s3cret",
            "an endpoint picker answers so if the token of EPP_METRIC_READER_BEARER_TOKEN is wrong or expired",
        ),
        (500, "", "answered 500, expected 200$"),
        (403, "s3cret", "the token of EPP_METRIC_READER_BEARER_TOKEN is of an account that may not get /metrics$"),
    ],
)
async def test_a_status_says_what_is_wrong_with_the_token(picker, status, token, words):
    """A real picker answers 500 to a token that the API server does not know, and 403 to one without the right."""
    picker.pod()
    picker.token = token
    picker.answer = web.Response(status=status)
    async with picker.reader() as reader:
        with pytest.raises(GatewayError, match=words):
            await reader.waiting(POOL)


def refused(count, *, model="m"):
    """Return the page of a picker that has refused this many requests since it began."""
    labels = f'error_code="ServiceUnavailable",model_name="{model}",target_model_name="{model}"'
    return web.Response(text=f"up 1\ninference_objective_request_error_total{{{labels}}} {count}\n")


async def test_what_a_picker_refuses_counts_for_a_few_seconds(picker, monkeypatch):
    """GAIE 1.2.1 holds no request at zero. Only what it has refused since the last look says that requests come."""
    now = asyncio.get_running_loop().time
    later = 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now() + later)
    picker.pod()
    seen = []
    async with picker.reader() as reader:
        for answer, pause in (
            (refused(5), 0),  # they may be years old
            (refused(7), 0.25),
            (refused(7), 1),  # a start may have failed
            (refused(7), 6),
            (refused(1), 0.25),  # the picker has begun anew
            (refused(9), 3600),  # the model was not at zero, so nobody looked
            (refused(10), 0.25),
        ):
            picker.answer = answer
            later += pause
            seen.append((await reader.waiting(POOL)).waiting.get("m", 0))
    assert seen == [0, 2, 2, 0, 1, 0, 1]


async def test_the_first_request_that_a_picker_refuses_counts(picker):
    """Before it, the page has no such series."""
    picker.pod()
    picker.answer = web.Response(text="inference_extension_info{} 1\n")
    async with picker.reader() as reader:
        found = await reader.waiting(POOL)
        assert (found.waiting, found.trouble.reason, found.trouble.known) == ({}, "QueueNotYetKnown", False)
        picker.answer = refused(1)
        found = await reader.waiting(POOL)
        assert (found.waiting, found.trouble.reason, found.trouble.known) == ({"m": 1.0}, "QueueMissing", True)
        picker.answer = web.Response(text=line())
        assert not (await reader.waiting(POOL)).trouble


async def test_a_long_page_is_followed_by_a_pause(picker):
    """A pool of long pages takes no more of the controller than others."""
    picker.pod()
    picker.answer = web.Response(text="# a\n" * 1024 * 1024)
    async with picker.reader() as reader:
        assert (await reader.waiting(POOL)).pause_seconds == 0.125


async def test_an_endless_answer_is_cut(picker):
    """WVA stops reading at the limit, and reports an error."""

    async def endless(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(10_000):
            await response.write(b"# a comment that goes on\n" * 1000)
        return response

    picker.pod()
    picker.answer = endless
    async with picker.reader(MAX_PAGE_BYTES=200_000) as reader:
        with pytest.raises(GatewayError, match="sent more than 200,000 bytes"):
            await reader.waiting(POOL)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "x"])
async def test_compressed_metrics_are_not_unpacked(picker, encoding):
    """WVA asks for uncompressed metrics, because 16 KiB can unpack to 16 MiB."""
    picker.pod()
    body = gzip.compress(line().encode() * 200_000)
    picker.answer = web.Response(body=body, headers={"Content-Encoding": encoding})
    async with picker.reader() as reader:
        with pytest.raises(GatewayError, match="sent compressed metrics, which were asked for uncompressed"):
            await reader.waiting(POOL)
    assert picker.requests[0].headers["Accept-Encoding"] == "identity"


@asynccontextmanager
async def silence():
    """Accept connections and send no answer; yield the port and the connections."""
    open_connections = []
    server = await asyncio.start_server(lambda _, writer: open_connections.append(writer), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], open_connections
    finally:
        for writer in open_connections:
            writer.close()
        server.close()


async def failure(reader, pool):
    """Return the error of reading a pool."""
    with pytest.raises(GatewayError) as caught:
        await reader.waiting(pool)
    return str(caught.value)


async def test_silent_pods_delay_no_other_pool(picker):
    """WVA reads the pool of another namespace at once. The round over the hundred silent pods ends."""
    for number in range(100):
        picker.pod(f"epp-{number:03}", namespace="hostile")
    picker.pod()
    async with silence() as (port, connections), picker.reader(SCRAPE_TIMEOUT_SECONDS=1.0) as reader:
        picker.port_of["hostile"] = port
        hostile = asyncio.create_task(failure(reader, Pool("hostile", "p", "epp")))
        await connected(connections, 10)
        assert (await reader.waiting(POOL)).waiting == {"m": 3.0}
        assert len(connections) == 10
        assert "did not answer within" in await hostile
        assert len(connections) < 40


async def connected(connections, count):
    """Wait until there are that many connections."""
    async with asyncio.timeout(10):
        while len(connections) < count:  # noqa: ASYNC110 - asyncio.Server has no event for a connection
            await asyncio.sleep(0.01)


async def test_of_many_pods_some_are_read_in_each_round(picker):
    """WVA reads the others in the next rounds."""
    for number in range(MAX_PODS + 8):
        picker.pod(f"epp-{number:03}", ip=f"127.0.1.{number}")
    async with picker.reader() as reader:
        for _ in range(2):
            with pytest.raises(GatewayError):
                await reader.waiting(POOL)
        known = next(iter(reader._pickers.values()))
        assert known.rounds == 2
        assert len(reader._urls(POOL, known)) == MAX_PODS


async def test_a_service_with_a_huge_selector_is_not_kept(picker):
    """The error has the size of the selector and the limit."""
    picker.pod()
    picker.selector = {f"l{number}": "x" for number in range(10_000)}
    async with picker.reader() as reader:
        with pytest.raises(GatewayError, match=r"spec\.selector has 10,000 labels, expected at most 64"):
            await reader.waiting(POOL)


@pytest.mark.parametrize(
    "text",
    [
        line(count="9" * 400),
        line(count="9" * 5_000),
        line(count="1e400"),
        line(count="1.7e308"),
        line(count=f"1 {'9' * 400}"),
        line(count="1 2 3"),
        line(count="0x10"),
        line(count="1_000"),
        f"up 1\n{QUEUE_SIZE_METRIC}{{a=}} 1\n",
        f'up 1\n{QUEUE_SIZE_METRIC}{{a="b" 1\n',
        f'up 1\n{QUEUE_SIZE_METRIC}{{a="b"}}\n',
    ],
)
def test_a_line_that_cannot_be_read_is_an_error(text):
    """WVA refuses endless digits, too many words, malformed labels and too many lines."""
    with pytest.raises(ValueError, match=r"^(no|more)"):
        read_page(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (line(count="3 1700000000000"), {"m": 3.0}),
        (line(count="  3e0\t -5 "), {"m": 3.0}),
        (line(count="3\r"), {"m": 3.0}),
        (f'up 1\n{QUEUE_SIZE_METRIC} {{ model_name = "a" , x="" , }}2\n', {"a": 2.0}),
        (f"{QUEUE_SIZE_METRIC}{{}} 2\n", {"": 2.0}),
        (f"# {line()}", {}),
        (line(model="a\u2028b"), {"a\u2028b": 3.0}),
        ("up 1\n" + line(), {"m": 3.0}),
    ],
)
def test_every_form_of_a_line_is_read(text, expected):
    """A line may have a time, blanks, a comma at the end or a carriage return."""
    assert read_page(text).waiting == expected


@pytest.mark.parametrize(
    "piece",
    [
        line(),
        QUEUE_SIZE_METRIC + "\n",
        QUEUE_SIZE_METRIC + '{a="' + "\\" * 16_000 + "\n",
        QUEUE_SIZE_METRIC + "{" + 'a="b",' * 2_000 + "\n",
        "} ",
        "}",
        " ",
        "\t",
        "\n",
        'a{"',
        "a" * 100 + "{",
        "a 1\n",
    ],
)
@pytest.mark.parametrize("start", ["", "a{", "up 1\n"])
def test_reading_takes_time_in_proportion_to_the_page(start, piece):
    """The time to read a page grows with its length, not with the square of it, even if the page is malformed."""

    def read(size):
        text = start + piece * (size // len(piece))
        with suppress(ValueError):
            read_page(text)

    assert times_as_long(lambda: read(1024 * 1024), lambda: read(64 * 1024)) < 40


def serve_tls(picker, authority, *names):
    """Let the picker show a certificate with these names."""
    picker.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(picker.tls)


async def test_pages_are_read_over_https_where_the_authority_is_known(picker, tmp_path):
    """The certificate has the name of the Service, because pods have no name of their own."""
    authority, path = trustme.CA(), tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(path)
    picker.ca_path = str(path)
    serve_tls(picker, authority, "epp.ns.svc", "epp.ns.svc.cluster.local")
    picker.pod()
    async with picker.reader() as reader:
        assert (await reader.waiting(POOL)).waiting == {"m": 3.0}
    assert picker.requests[0].secure


@pytest.mark.parametrize(
    ("names", "trusted"), [(["epp.ns.svc"], False), (["other.ns.svc", "127.0.0.1"], True), ([], True)]
)
async def test_a_picker_without_the_right_certificate_gets_no_token(picker, tmp_path, names, trusted):
    """An unknown authority, another name, and plain HTTP are refused."""
    authority, path = trustme.CA(), tmp_path / "ca.crt"
    (authority if trusted else trustme.CA()).cert_pem.write_to_path(path)
    picker.ca_path, picker.token = str(path), "s3cret"
    if names:
        serve_tls(picker, authority, *names)
    picker.pod()
    async with picker.reader() as reader:
        with pytest.raises(
            GatewayError,
            match=r"expected a certificate of epp\.ns\.svc from the authority of EPP_METRICS_CA_CERT_PATH$",
        ):
            await reader.waiting(POOL)
    assert not picker.requests


async def test_a_new_authority_counts_and_a_broken_file_leaves_the_last_one(picker, tmp_path):
    """The file is looked at each time the Service is."""
    path = tmp_path / "ca.crt"
    picker.ca_path = str(path)
    authority = trustme.CA()
    serve_tls(picker, authority, "epp.ns.svc")
    picker.pod()
    async with picker.reader(_SERVICE_TTL_SECONDS=0.0) as reader:
        for content in (None, "no certificate"):
            if content is not None:
                path.write_text(content)
            with pytest.raises(GatewayError, match=r"EPP_METRICS_CA_CERT_PATH='.*ca\.crt' cannot be used: .* in PEM$"):
                await reader.waiting(POOL)
        authority.cert_pem.write_to_path(path)
        assert (await reader.waiting(POOL)).waiting == {"m": 3.0}
        path.unlink()
        assert (await reader.waiting(POOL)).waiting == {"m": 3.0}


@pytest.mark.parametrize("kind", ["pipe", "device"])
async def test_an_authority_that_is_no_file_does_not_hold_the_controller(picker, tmp_path, kind):
    """Opening a pipe would stop the event loop for ever, and a device would fill the memory."""
    path = tmp_path / "ca.crt"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    picker.ca_path = str(path)
    picker.pod()
    async with picker.reader() as reader:
        with pytest.raises(GatewayError, match="cannot be used: it is not a file; expected a file with CA"):
            await reader.waiting(POOL)


async def test_a_pod_that_never_answers_is_given_up(picker):
    """WVA waits for the time limit, and the error says so."""

    async def never(_):
        await asyncio.sleep(3600)

    picker.pod()
    picker.answer = never
    async with picker.reader(SCRAPE_TIMEOUT_SECONDS=0.05) as reader:
        with pytest.raises(GatewayError, match="did not answer within"):
            await reader.waiting(POOL)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ports": []}, "has no port with 'metric' in its name"),
        ({"ports": [{"name": "grpc", "port": 9002}]}, "has no port with 'metric' in its name"),
        ({"selector": {}}, "has no Ready pod"),
        ({"service_error": NotFound(404, "NotFound", "gone")}, "Service ns/epp cannot be read"),
    ],
)
async def test_what_is_missing_is_named(picker, change, words):
    """The error says whether the metrics port, the pods or the Service is missing."""
    picker.pod()
    for name, value in change.items():
        setattr(picker, name, value)
    async with picker.reader() as reader:
        with pytest.raises(GatewayError, match=words):
            await reader.waiting(POOL)


async def test_a_pool_without_a_picker_is_an_error(picker):
    """WVA cannot ask such a pool."""
    async with picker.reader() as reader:
        with pytest.raises(GatewayError, match="names no endpoint picker"):
            await reader.waiting(Pool("ns", "pool", ""))


async def test_the_service_is_not_asked_for_each_time(picker):
    """WVA reads a pool four times a second, and asks for its Service once. It asks again after a failure."""
    picker.pod()
    async with picker.reader() as reader:
        picker.service_error = NotFound(404, "NotFound", "not yet")
        with pytest.raises(GatewayError):
            await reader.waiting(POOL)
        picker.service_error = None
        for _ in range(3):
            await reader.waiting(POOL)
    assert picker.asked_for_service == 2


async def test_a_named_target_port_is_the_port_of_the_service(picker):
    """WVA keeps pods without their ports, so it cannot look the name up."""
    picker.pod()
    async with picker.reader() as reader:
        picker.ports = [{"name": "metrics", "port": picker.port, "targetPort": "metrics"}]
        assert (await reader.waiting(POOL)).waiting == {"m": 3.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (line(), {"m": 3.0}),
        (line() + line(count="2"), {"m": 5.0}),
        (line(label="model_name"), {"m": 3.0}),
        (f'{QUEUE_SIZE_METRIC}{{model_name="a",target_model_name=""}} 1\n', {"a": 1.0}),
        (f'{QUEUE_SIZE_METRIC}{{model_name="a",target_model_name="b"}} 1\n', {"b": 1.0}),
        (line(count="0.5"), {"m": 0.5}),
        (line(count="0"), {}),
        (line(count="-1"), {}),
        (line(count="NaN"), {}),
        (line(count="+Inf"), {}),
        (line(metric="inference_extension_flow_control_queue_size_bucket"), {}),
        (f"{QUEUE_SIZE_METRIC} 4\n", {"": 4.0}),
        (line(model="x" * 100_000), {}),
        (line(model='a\\"b\\nc'), {'a"b\nc': 3.0}),
        ("", {}),
    ],
)
def test_queues_by_model(text, expected):
    """A line counts for its target model, or else for its model; only positive numbers count."""
    assert read_page(text).waiting == expected


@given(st.text() | st.text().map(lambda text: f"{QUEUE_SIZE_METRIC}{{{text}}} 1\n"))
def test_no_text_raises_anything_but_a_value_error(text):
    """A picker may send any text."""
    try:
        found = read_page(text).waiting
    except ValueError:
        return
    assert all(count > 0 for count in found.values())

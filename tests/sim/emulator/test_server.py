"""The emulator has the HTTP API of vLLM, for gateways, load generators and Prometheus."""

from __future__ import annotations

import json

import prometheus_client.metrics
import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from tests.golden.pages import vllm_page
from wva.sim.emulator.server import EmulatorServer

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def chat(**more):
    """Return the body of a chat completion."""
    return {"model": "org/m", "messages": [{"role": "user", "content": "x" * 40}], **more}


def text(**more):
    """Return the body of a completion."""
    return {"model": "org/m", "prompt": "x" * 40, **more}


async def post(client, path, body):
    """Post JSON; return status and decoded answer."""
    async with client.post(path, json=body) as response:
        return response.status, json.loads(await response.text())


async def events(client, path, body):
    """Post JSON and return the events of the stream."""
    async with client.post(path, json=body) as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/event-stream")
        lines = (await response.text()).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


async def test_models(client):
    """The list has the one model with its length."""
    async with client.get("/v1/models") as response:
        (model,) = (await response.json())["data"]
    assert (model["id"], model["max_model_len"]) == ("org/m", 512)


async def test_chat_completion(client):
    """The answer has its usage; a prompt of 40 characters counts as ten tokens, and its role as four."""
    status, answer = await post(client, CHAT, chat(max_tokens=7))
    assert status == 200
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": "word " * 7}
    assert choice["finish_reason"] == "length"
    usage = {"prompt_tokens": 14, "completion_tokens": 7, "total_tokens": 21, "prompt_tokens_details": None}
    assert answer["usage"] == usage
    assert answer["object"] == "chat.completion"


async def test_completion(client):
    """The server also answers completions, the older form."""
    status, answer = await post(client, TEXT, text(max_tokens=3))
    assert status == 200
    assert answer["choices"][0]["text"] == "word " * 3
    assert answer["usage"]["prompt_tokens"] == 10


async def test_answer_ends_by_itself(client):
    """Without a limit the model decides the length, and the finish reason is ``stop``."""
    _, answer = await post(client, CHAT, chat())
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert 10 <= answer["usage"]["completion_tokens"] <= 30


@pytest.mark.parametrize(("path", "body"), [(CHAT, chat), (TEXT, text)], ids=["chat", "text"])
async def test_stream_adds_up(client, path, body):
    """Each token is an event of its own; the last one has the finish reason. A chat begins with the role."""
    told = await events(client, path, body(stream=True, max_tokens=40, ignore_eos=True))
    choices = [event["choices"][0] for event in told]
    if path == CHAT:
        assert choices.pop(0)["delta"] == {"role": "assistant", "content": ""}
    pieces = [choice["delta"]["content"] if path == CHAT else choice["text"] for choice in choices]
    assert pieces == ["word "] * 40
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["length"]
    assert len({event["id"] for event in told}) == 1


async def test_stream_tells_the_usage_when_it_is_wanted(client):
    """The usage comes in an event of its own, without choices."""
    told = await events(client, CHAT, chat(stream=True, max_tokens=4, stream_options={"include_usage": True}))
    assert told[-1]["choices"] == []
    assert told[-1]["usage"]["completion_tokens"] == 4
    assert not any("usage" in event for event in told[:-1])


async def test_stream_tells_the_usage_with_every_token(client):
    """With ``continuous_usage_stats`` each event has the usage so far."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    told = await events(client, TEXT, text(stream=True, max_tokens=3, stream_options=options))
    assert [event["usage"]["completion_tokens"] for event in told] == [1, 2, 3, 3]
    assert [event["usage"]["total_tokens"] for event in told] == [11, 12, 13, 13]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_several_answers(client, stream):
    """Several prompts and several answers to each are computed together; a prompt counts once."""
    body = text(prompt=["a" * 40, "b" * 20], n=2, max_tokens=2, stream=stream)
    if not stream:
        status, answer = await post(client, TEXT, body)
        assert status == 200
        assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
        assert {choice["text"] for choice in answer["choices"]} == {"word word "}
        assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (15, 8)
        return
    told = [event["choices"][0] for event in await events(client, TEXT, body)]
    assert sorted(choice["index"] for choice in told) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sum(choice["finish_reason"] == "length" for choice in told) == 4


@pytest.mark.parametrize(
    ("prompt", "count"),
    [("", 1), ("abcde", 2), ([1, 2, 3], 3), (["abcd"], 1), ([[1, 2]], 2), ([], 1)],
    ids=["empty", "text", "token ids", "one text", "one list of ids", "no ids"],
)
async def test_prompt_in_any_form(client, prompt, count):
    """The prompt may be text or token ids, alone or as the only element of a list."""
    _, answer = await post(client, TEXT, text(prompt=prompt, max_tokens=1))
    assert answer["usage"]["prompt_tokens"] == count


async def test_content_in_parts(client):
    """Only text counts as tokens, and a message may have no text."""
    parts = [{"type": "text", "text": "x" * 8}, {"type": "image_url", "image_url": {"url": "data:"}}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": None}]
    _, answer = await post(client, CHAT, chat(messages=messages, max_completion_tokens=1, max_tokens=9))
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (11, 1)


REQUESTS = {
    "ping": ("GET", "/ping", None, 200),
    "ping by POST": ("POST", "/ping", {}, 200),
    "health": ("GET", "/health", None, 200),
    "version": ("GET", "/version", None, 200),
    "load": ("GET", "/load", None, 200),
    "models": ("GET", "/v1/models", None, 200),
    "unknown path": ("GET", "/v1/nothing", None, 404),
    "wrong method": ("GET", TEXT, None, 405),
    "tokenize": ("POST", "/tokenize", {"model": "org/m", "prompt": "x" * 9}, 200),
    "tokenize a chat": ("POST", "/tokenize", {"messages": [{"role": "user", "content": "hello"}]}, 200),
    "tokenize nothing": ("POST", "/tokenize", {"model": "org/m"}, 400),
    "responses": ("POST", "/v1/responses", {"model": "org/m", "input": "hello"}, 200),
    "messages": ("POST", "/v1/messages", chat(max_tokens=5), 200),
    "messages without max_tokens": ("POST", "/v1/messages", chat(), 400),
    "completion": ("POST", TEXT, text(), 200),
    "several prompts": ("POST", TEXT, text(prompt=["a", "b"]), 200),
    "prompt of objects": ("POST", TEXT, text(prompt=[{}]), 400),
    "no prompt": ("POST", TEXT, {"model": "org/m"}, 400),
    "prompt too long": ("POST", TEXT, text(prompt="x" * 4000), 400),
    "n=2": ("POST", CHAT, chat(n=2), 200),
    "n=0": ("POST", CHAT, chat(n=0), 400),
    "max_tokens as text": ("POST", CHAT, chat(max_tokens="3"), 200),
    "max_tokens as a float": ("POST", CHAT, chat(max_tokens=3.0), 200),
    "max_tokens=0": ("POST", CHAT, chat(max_tokens=0), 400),
    "max_tokens beyond the model": ("POST", CHAT, chat(max_tokens=1000), 400),
    "no messages": ("POST", CHAT, {"model": "org/m"}, 400),
    "messages as text": ("POST", CHAT, chat(messages="hello"), 400),
    "temperature=-1": ("POST", CHAT, chat(temperature=-1), 400),
    "stream_options without stream": ("POST", CHAT, chat(stream_options={"include_usage": True}), 400),
    "no model": ("POST", CHAT, {"messages": chat()["messages"]}, 200),
    "another model": ("POST", CHAT, chat(model="other"), 404),
    "an unknown field": ("POST", CHAT, chat(nothing=1), 200),
}
"""Requests with the status that a vLLM 0.32.0 answers."""


@pytest.mark.parametrize(("method", "path", "body", "status"), REQUESTS.values(), ids=REQUESTS)
async def test_the_status_is_that_of_vllm(client, method, path, body, status):
    """Each request gets the status that vLLM gives it; an error has the form that OpenAI's clients read."""
    async with client.request(method, path, json=body) as response:
        assert response.status == status
        if status >= 400:
            error = (await response.json())["error"]
            assert error["code"] == status
            assert error["message"]
            assert error["type"]


@pytest.mark.parametrize(
    ("path", "body", "field", "words"),
    [
        (CHAT, chat(max_tokens=0), "max_tokens", "greater than or equal to 1, got '0'"),
        (CHAT, chat(messages="hello"), "messages", "valid array"),
        (CHAT, chat(model="other"), "model", "The model `other` does not exist."),
        (CHAT, chat(max_tokens=1000), "max_tokens", "maximum context length is 512 tokens"),
        (TEXT, {"model": "org/m"}, "prompt", "Field required"),
        (TEXT, text(stream_options={}), None, "only be defined when `stream=True`"),
    ],
    ids=["limit", "type", "model", "length", "missing", "stream"],
)
async def test_an_error_says_what_is_wrong(client, path, body, field, words):
    """The error names the field, and what was expected of it."""
    _, answer = await post(client, path, body)
    assert answer["error"]["param"] == field
    assert words in answer["error"]["message"]


async def test_tokenize_counts(client):
    """A text of nine characters is three tokens."""
    _, answer = await post(client, "/tokenize", {"prompt": "x" * 9})
    assert (answer["count"], len(answer["tokens"]), answer["max_model_len"]) == (3, 3, 512)


async def test_load_counts_the_requests_in_progress(client):
    """The load is the number of requests whose answer is not complete."""
    async with client.get("/load") as load:
        assert await load.json() == {"server_load": 0}
    async with client.post(TEXT, json=text(stream=True, max_tokens=490, ignore_eos=True)) as response:
        await response.content.readline()
        async with client.get("/load") as load:
            assert await load.json() == {"server_load": 1}


async def test_version(client):
    """The version is that of the vLLM whose page and API this is."""
    async with client.get("/version") as response:
        assert await response.json() == {"version": "0.32.0"}


async def test_message(client):
    """Anthropic's API: the system's message counts, and a cut answer says so."""
    body = chat(max_tokens=3, system="x" * 8)
    _, answer = await post(client, "/v1/messages", body)
    assert answer["content"] == [{"type": "text", "text": "word word word "}]
    assert answer["stop_reason"] == "max_tokens"
    assert answer["usage"] == {"input_tokens": 20, "output_tokens": 3}


async def test_response(client):
    """The Responses API: the output is one message; a cut answer is incomplete."""
    body = {"model": "org/m", "input": "x" * 8, "max_output_tokens": 3}
    _, answer = await post(client, "/v1/responses", body)
    assert answer["output"][0]["content"][0]["text"] == "word word word "
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert answer["usage"] == {"input_tokens": 6, "output_tokens": 3, "total_tokens": 9}


@pytest.mark.parametrize(
    ("path", "body", "first", "token", "last"),
    [
        ("/v1/messages", chat(max_tokens=3), "message_start", "content_block_delta", "message_stop"),
        (
            "/v1/responses",
            {"input": [{"role": "user", "content": "hello"}], "max_output_tokens": 3},
            "response.created",
            "response.output_text.delta",
            "response.incomplete",
        ),
    ],
    ids=["messages", "responses"],
)
async def test_named_events(client, path, body, first, token, last):
    """These streams consist of named events, with one for each token."""
    async with client.post(path, json=body | {"stream": True}) as response:
        told = [part.split("\n") for part in (await response.text()).split("\n\n") if part]
    names = [name.removeprefix("event: ") for name, _ in told]
    assert [json.loads(data.removeprefix("data: "))["type"] for _, data in told] == names
    assert (names[0], names[-1], names.count(token)) == (first, last, 3)


async def test_what_is_no_json_is_refused(client):
    """A body that is no JSON gets 400, not 500."""
    async with client.post(CHAT, data=b"\xff{") as response:
        assert response.status == 400
        assert "Invalid JSON" in (await response.json())["error"]["message"]


async def test_metrics_after_a_request(client):
    """The metrics page has the names and types of vLLM."""
    await post(client, TEXT, text(max_tokens=3))
    async with client.get("/metrics") as response:
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        page = await response.text()
    assert 'vllm:request_success_total{engine="0",finished_reason="length",model_name="org/m"} 1.0' in page
    assert 'vllm:generation_tokens_total{engine="0",model_name="org/m"} 3.0' in page
    assert "# TYPE vllm:kv_cache_usage_perc gauge" in page


def families(page, *beginnings):
    """Return of each such family its type and the names of its samples and labels."""
    return {
        family.name: (family.type, {(sample.name, *sorted(sample.labels)) for sample in family.samples})
        for family in text_string_to_metric_families(page)
        if family.name.startswith(beginnings)
    }


async def test_the_whole_page_is_that_of_vllm(client, monkeypatch):
    """After a request the page has the families, types and labels of a real server's: no more and no less."""
    # The controller's metrics, which other tests in this process make, switch these series off for the whole process.
    monkeypatch.setattr(prometheus_client.metrics, "_use_created", True)
    await post(client, TEXT, text(max_tokens=3))
    async with client.get("/metrics") as response:
        page = await response.text()
    real = vllm_page("after-24-requests")
    assert families(page, "") == families(real, "")
    status = 'http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 1.0'
    assert status in page
    assert 'handler="/metrics"' not in page


async def test_nothing_is_served_while_the_model_loads(running, clock):
    """While the model loads, readiness fails and liveness does not; afterwards readiness succeeds."""
    server = EmulatorServer(running, clock=clock, startup_seconds=30)
    async with TestClient(TestServer(server.application())) as client:
        for path in ("/health", "/v1/models", "/metrics"):
            async with client.get(path) as response:
                assert response.status == 503
                assert (await response.json())["error"]["code"] == 503
        async with client.get("/ping") as response:
            assert response.status == 200
        clock.seconds += 30
        async with client.get("/health") as response:
            assert response.status == 200


async def test_serving_takes_a_port_and_gives_it_back(running, clock):
    """Port 0 takes a free port. A second server on the same port raises OSError."""
    server = EmulatorServer(running, clock=clock)
    async with server.serving(host="127.0.0.1", port=0) as port:
        assert port > 0
        with pytest.raises(OSError, match="address"):
            async with server.serving(host="127.0.0.1", port=port):
                pass

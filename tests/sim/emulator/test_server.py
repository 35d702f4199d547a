"""The emulator has the HTTP API of vLLM, for gateways, load generators and Prometheus."""

from __future__ import annotations

import json

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
    assert answer["usage"] == {"prompt_tokens": 14, "completion_tokens": 7, "total_tokens": 21}
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
    """The pieces together are the whole answer. The first piece is one token, and the last has the finish reason."""
    told = await events(client, path, body(stream=True, max_tokens=40, ignore_eos=True))
    choices = [event["choices"][0] for event in told]
    pieces = [choice["delta"]["content"] if path == CHAT else choice["text"] for choice in choices]
    assert "".join(pieces) == "word " * 40
    assert pieces[0] == "word "
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["length"]
    assert len({event["id"] for event in told}) == 1
    if path == CHAT:
        assert choices[0]["delta"]["role"] == "assistant"


async def test_stream_tells_the_usage_when_it_is_wanted(client):
    """The usage comes in an event of its own, without choices."""
    told = await events(client, CHAT, chat(stream=True, max_tokens=4, stream_options={"include_usage": True}))
    assert told[-1]["choices"] == []
    assert told[-1]["usage"]["completion_tokens"] == 4


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
    assert answer["usage"] == {"prompt_tokens": 11, "completion_tokens": 1, "total_tokens": 12}


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (CHAT, chat(model="other"), 404, "The model `other` does not exist."),
        (CHAT, chat(n=2), 400, "n=2: expected 1"),
        (CHAT, chat(max_tokens=0), 400, "max_tokens=0: expected at least 1"),
        (CHAT, chat(messages="hello"), 400, "the body does not fit"),
        (TEXT, text(prompt=["a", "b"]), 400, "expected one prompt"),
        (TEXT, text(prompt=[{}]), 400, "expected one prompt"),
        (TEXT, text(prompt="x" * 4000), 400, "expected fewer than max_model_len=512"),
    ],
    ids=["model", "n", "max_tokens", "type", "prompts", "objects", "length"],
)
async def test_what_is_not_served_is_refused_in_words(client, path, body, status, words):
    """An unsupported request gets an error in the form that OpenAI's clients read."""
    answered, answer = await post(client, path, body)
    assert answered == status
    assert words in answer["error"]["message"]
    assert answer["error"]["code"] == status


async def test_what_is_no_json_is_refused(client):
    """A body that is no JSON gets 400, not 500."""
    async with client.post(CHAT, data=b"\xff{") as response:
        assert response.status == 400
        assert "does not fit" in (await response.json())["error"]["message"]


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


async def test_the_whole_page_is_that_of_vllm(client):
    """After a request the page has the families, types and labels of a real server's: no more and no less."""
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

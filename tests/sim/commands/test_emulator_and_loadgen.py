"""``wva emulator`` and ``wva loadgen`` run as two processes, and one sends load to the other."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest

RATE = "[[1, 1200]]"


async def first_line(process):
    """Return the first line of standard output."""
    async with asyncio.timeout(60):
        return (await process.stdout.readline()).decode()


async def test_load_against_an_emulated_replica(start, run):
    """Every request is answered, the summary counts them, and the emulator ends with status 0 on SIGTERM."""
    emulator = await start("emulator", "--model", "m", "--port", "0")
    line = await first_line(emulator)
    assert line.startswith("serving m as one A100 on 127.0.0.1:")
    url = f"http://{line.split()[-1]}/v1"
    outcome = await run(
        "loadgen", "--model", "m", "--url", url, "--rate", RATE, "--evenly", "--max-tokens", "3", "-o", "json"
    )
    assert outcome.status == 0, outcome.err
    report = json.loads(outcome.out)
    assert (report["sent"], report["answered"], report["failures"]) == (20, 20, {})
    assert report["output_tokens"] == 60
    assert report["time_to_first_token"]["p50"] > 0
    emulator.send_signal(signal.SIGTERM)
    async with asyncio.timeout(60):
        assert await emulator.wait() == 0


async def test_nothing_answered_is_status_1(run, free_port):
    """The status is 1, so that a pipeline notices that no request was answered."""
    url = f"http://127.0.0.1:{free_port}/v1"
    outcome = await run("loadgen", "--model", "m", "--url", url, "--rate", "[[0.2, 600]]", "--evenly")
    assert outcome.status == 1
    assert "0 answered" in outcome.out
    assert "(ClientConnectorError)" in outcome.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--rate", "40"), "--rate='40': expected a list of [seconds, requests per minute]"),
        (("--rate", RATE, "--url", "localhost:8000"), "--url: expected the root of an API"),
        (("--rate", RATE, "--content", "0"), "--content=0"),
        (("--rate", RATE, "--timeout", "5"), "--timeout: "),
        (("--rate", RATE, "--timeout", "0"), "--timeout=0"),
        (("--rate", RATE, "--concurrency", "0"), "--concurrency"),
    ],
)
def test_flags_of_the_load_that_make_no_sense(wva, words, told):
    """The error is one line that names the flag."""
    outcome = wva("loadgen", "--model", "m", *words)
    assert outcome.status == 2
    assert len(outcome.lines) == 1
    assert told in outcome.lines[0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--accelerator", "B999"), "--accelerator='B999': expected one of H100"),
        (("--max-model-len", "1"), "max_model_len must hold"),
        (("--output-tokens", "0"), "--output-tokens=0"),
        (("--startup", "soon"), "--startup: "),
        (("--startup=-1s",), "--startup=-1s"),
        (("--port", "99999"), "--port=99999: "),
    ],
)
def test_flags_of_the_emulator_that_make_no_sense(wva, words, told):
    """The error is one line that names the flag."""
    outcome = wva("emulator", "--model", "m", *(word for word in words))
    assert outcome.status == 2
    assert len(outcome.lines) == 1
    assert told in outcome.lines[0]

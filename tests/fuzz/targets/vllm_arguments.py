"""Command lines of containers. An input is a JSON list of words, or the script of ``sh -c``."""

from __future__ import annotations

import json
import math

from wva.model.vllm_parameters import (
    _FLAGS,
    _NUMBERS,
    _TEXTS,
    EngineCommand,
    VllmParameters,
    argument_problems,
    read_parameters,
)
from wva.numbers import MAX_REPLICAS


def words():
    """Return vLLM's arguments, and pieces of shell scripts."""
    for name in sorted({*_FLAGS, *_NUMBERS, *_TEXTS}):
        yield from (f"--{name}", f"--{name.replace('_', '-')}=")
    yield from ("sh", "/bin/bash", "-c", "'", '"', " ", "\\\n", "vllm serve m", "=", "0", "1", "auto", "0.9", "1e9")


def check(data):
    """Numbers are finite and possible for an engine; the same command gives the same parameters."""
    text = data.decode("utf-8", errors="replace")
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if isinstance(given, list):
        command = tuple(word for word in given if isinstance(word, str))
    else:
        command = ("/bin/sh", "-c", text)
    found = read_parameters([EngineCommand(command, "0" if len(command) % 2 else None)])
    assert found == read_parameters([EngineCommand(command, "0" if len(command) % 2 else None)])
    problems = argument_problems([EngineCommand(command)])
    assert len(problems) <= 3
    assert all(len(problem) < 300 and "in force: " in problem for problem in problems)
    for number in (found.block_size, found.tensor_parallel_size, found.max_num_seqs, found.batched_tokens):
        assert isinstance(number, int)
        assert abs(number) <= MAX_REPLICAS
    assert math.isfinite(found.gpu_memory_utilization)
    assert 0 <= found.override_tokens <= MAX_REPLICAS**2
    return found != VllmParameters()

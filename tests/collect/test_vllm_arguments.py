"""The parameters of vLLM, read from the Deployment of a variant."""

from __future__ import annotations

import msgspec
import pytest

from tests.collect.cluster import accepted_variants
from tests.timing import times_as_long
from wva.collect.variants import vllm_problems
from wva.model.vllm_parameters import EngineCommand, VllmParameters, _split, read_parameters
from wva.targets import Deployment

TEMPLATE = {
    "containers": [
        {"name": "sidecar", "args": ["--block-size=99", "--max-num-seqs", "1"]},
        {
            "name": "vllm",
            "command": ["vllm", "serve", "m"],
            "args": ["--block-size=32", "--max-num-seqs", "64"],
            "env": [
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "VLLM_USE_V1", "value": "1"},
                {"name": "VLLM_USE_V1", "value": "0"},
            ],
        },
    ],
    "initContainers": [{"name": "download", "args": ["--block-size=7"]}],
}


def test_a_variant_carries_the_parameters_of_its_deployment(cluster):
    """Later containers override earlier ones, and init containers do not count."""
    made = cluster.deployment("d")
    wire = msgspec.to_builtins(made) | {"spec": {"replicas": 1, "template": {"spec": TEMPLATE}}}
    cluster.deployments.upsert(msgspec.convert(wire, Deployment))
    cluster.va(target="d")
    (accepted,) = accepted_variants(cluster.stores)
    expected = VllmParameters(block_size=32, max_num_seqs=64, v1_engine=False, chunked_prefill=False)
    assert accepted.variant.parameters == expected
    assert expected.batched_tokens == 2048


def test_numbers_that_no_engine_takes_keep_the_default():
    """Infinite, very long and malformed numbers keep the default."""
    words = ("--gpu-memory-utilization=inf", "--max-num-seqs=" + "9" * 100, "--block-size=x", "--max-model-len=1_000")
    assert read_parameters([EngineCommand(words)]) == VllmParameters()


def test_a_limit_of_zero_sequences_carries_nothing():
    """WVA takes the number as the arguments have it."""
    assert read_parameters([EngineCommand(("--max-num-seqs", "0"))]).max_num_seqs == 0
    assert read_parameters([EngineCommand(("--max-num-seqs", "-1"))]).max_num_seqs == -1


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("vllm  serve m", ["vllm", "serve", "m"]),
        ("--max-num-seqs '6'4", ["--max-num-seqs", "64"]),
        ("'a b'c \"d' e\"", ["a bc", "d' e"]),
        ("a 'b c", ["a", "b c"]),
        ("'' a \"\"", ["a"]),
        ("a\tb\n", ["a\tb\n"]),
    ],
)
def test_a_script_is_split_at_spaces_outside_of_quotes(script, words):
    """Quotes are dropped; an open quote reaches to the end."""
    assert list(_split(script)) == words


@pytest.mark.parametrize("piece", ["'", "' ", "'a'", "\"'", "a", "a ", "--block-size=7 "])
def test_reading_takes_time_in_proportion_to_the_length(piece):
    """Reading 64 KiB takes less than 40 times as long as 4 KiB, so the time does not grow as the square."""

    def read(size):
        read_parameters([EngineCommand(("sh", "-c", piece * (size // len(piece))))])

    assert times_as_long(lambda: read(65_536), lambda: read(4_096)) < 40


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("--max-num-seqs=many", "--max-num-seqs: got 'many', expected a whole number"),
        ("--gpu-memory-utilization=90", "--gpu-memory-utilization: got '90', expected a number above 0"),
        ("--max-num-seqs=" + "9" * 5000, "--max-num-seqs: got '999"),
        ("--block-size=$(BLOCK_SIZE)", ""),
        ("--max-model-len=auto", ""),
        ("--max-model-len=32k", "--max-model-len: got '32k', expected a whole number"),
    ],
)
def test_a_number_that_is_none_is_told_with_what_is_in_force(cluster, word, told):
    """Variables and ``auto`` are no problem; a suffix is one, because WVA does not read it."""
    template = {"containers": [{"name": "vllm", "args": [word]}]}
    wire = msgspec.to_builtins(cluster.deployment("d")) | {"spec": {"template": {"spec": template}}}
    problems = vllm_problems(msgspec.convert(wire, Deployment))
    assert [problem[: len(told)] for problem in problems] == ([told] if told else [])
    assert all("in force: " in problem for problem in problems)


@pytest.mark.parametrize(
    ("words", "role"),
    [
        (("--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}'), "kv_producer"),
        (('--kv-transfer-config={"kv_role":"kv_consumer"}',), "kv_consumer"),
        (("--kv-transfer-config.kv_role", "kv_both"), "kv_both"),
        (("--kv-transfer-config", '{"kv_role": "king"}'), ""),
        (("--kv-transfer-config", '{"kv_role": ["kv_both"]}'), ""),
        (("--kv-transfer-config", "[" * 10_000), ""),
        (("--kv-transfer-config", "$CONFIG"), ""),
        (("--kv-transfer-config",), ""),
        (("sh", "-c", """vllm serve m --kv-transfer-config '{"kv_role":"kv_producer"}'"""), "kv_producer"),
    ],
)
def test_the_role_in_the_transfer_of_the_cache_is_read(words, role):
    """Only what vLLM knows as a role counts."""
    assert read_parameters([EngineCommand(words)]).kv_role == role

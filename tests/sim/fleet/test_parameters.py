"""The rules for the parameters of an engine."""

import pytest

from wva.model.records import replace
from wva.sim.fleet.parameters import PRESETS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha_seconds": 0.0}, "alpha_seconds"),
        ({"beta_seconds_per_sequence": -1.0}, "beta_seconds_per_sequence"),
        ({"prefill_seconds_per_token": -1.0}, "prefill_seconds_per_token"),
        ({"block_size": 0}, "block_size"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"max_num_batched_tokens": 255}, "max_num_batched_tokens"),
        ({"max_model_len": 1}, "max_model_len"),
        ({"num_gpu_blocks": 511}, "KV cache"),
    ],
)
def test_impossible_engines_are_refused(change, message):
    """The error names the parameter that is wrong."""
    with pytest.raises(ValueError, match=message):
        replace(PRESETS["H100"], **change)


def test_slots_or_cache_bound_the_concurrency():
    """Slots limit the number of short sequences, and memory that of long ones."""
    engine = PRESETS["H100"]
    assert engine.concurrent_sequences(tokens_per_sequence=16) == 256
    assert engine.concurrent_sequences(tokens_per_sequence=1024) == 128


def test_newer_card_is_faster():
    """An H100 has shorter step times than an A100."""
    newer, older = PRESETS["H100"], PRESETS["A100"]
    assert newer.alpha_seconds < older.alpha_seconds
    assert newer.beta_seconds_per_sequence < older.beta_seconds_per_sequence
    assert newer.prefill_seconds_per_token < older.prefill_seconds_per_token

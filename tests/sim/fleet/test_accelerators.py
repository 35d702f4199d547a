"""The parameters of an engine, computed from data sheets and model configurations."""

import pytest

from wva.model.records import replace
from wva.sim.fleet.accelerators import GPUS, MODELS, Precision, engine_parameters

FITTING = [
    ("H100", "Llama-3.1-8B", 1, "bf16"),
    ("H100", "Llama-3.1-70B", 4, "bf16"),
    ("H100", "Llama-3.1-70B", 2, "fp8"),
    ("H100", "Qwen3-32B", 2, "bf16"),
    ("A100", "Llama-3.1-8B", 1, "bf16"),
    ("A100", "Llama-3.1-70B", 4, "bf16"),
    ("L40S", "Llama-3.1-8B", 1, "bf16"),
    ("L40S", "Llama-3.1-8B", 1, "fp8"),
    ("MI300X", "Llama-3.1-8B", 1, "bf16"),
    ("MI300X", "Llama-3.1-70B", 1, "bf16"),
]


def engine(gpu, model="Llama-3.1-8B", **more):
    """Return the parameters of an engine."""
    return engine_parameters(gpu, model, **more)


@pytest.mark.parametrize(("gpu", "model", "tensor_parallel", "precision"), FITTING)
def test_usual_pairs_fit(gpu, model, tensor_parallel, precision):
    """Every pair that scenarios use has room for at least two sequences of the longest length."""
    parameters = engine(gpu, model, tensor_parallel=tensor_parallel, precision=Precision(precision))
    assert parameters.kv_cache_tokens >= 2 * parameters.max_model_len


def test_kv_cache_is_what_the_weights_leave():
    """An H100 with 16 GB of weights keeps some 430,000 tokens of 128 KiB, as vLLM logs it."""
    tokens = engine("H100").kv_cache_tokens
    assert tokens == pytest.approx(436_000, rel=0.03)
    fp8 = engine("H100", precision=Precision.FP8)
    assert fp8.kv_cache_tokens - tokens == pytest.approx(MODELS["Llama-3.1-8B"].body / 131_072, rel=0.01)
    assert engine("H100", kv_bytes=1).kv_cache_tokens == pytest.approx(2 * tokens, rel=1e-3)


def test_step_that_computes_nothing_reads_all_weights():
    """An empty step takes at least the bytes of the weights over the bandwidth of the data sheet."""
    for gpu, model, tensor_parallel, precision in FITTING:
        parameters = engine(gpu, model, tensor_parallel=tensor_parallel, precision=Precision(precision))
        size = 2 if precision == "bf16" else 1
        least = MODELS[model].body * size / tensor_parallel / GPUS[gpu].bandwidth
        assert least < parameters.alpha_seconds < 4.5 * least


def test_prompts_take_at_least_what_the_peak_allows():
    """The peak performance bounds a prompt's time: two operations for each weight and token."""
    for gpu in ("H100", "A100", "L40S", "MI300X"):
        least = 2 * MODELS["Llama-3.1-8B"].body / GPUS[gpu].bf16_flops
        assert least < engine(gpu).prefill_seconds_per_token < 4 * least


def test_more_gpus_make_steps_shorter_but_not_in_proportion():
    """The GPUs divide reading and computing, but the all-reduces cost time."""
    one, four = (engine("H100", "Llama-3.1-8B", tensor_parallel=n) for n in (1, 4))
    assert one.alpha_seconds / 4 < four.alpha_seconds < one.alpha_seconds
    assert one.prefill_seconds_per_token / 4 < four.prefill_seconds_per_token < one.prefill_seconds_per_token
    assert four.kv_cache_tokens > 4 * one.kv_cache_tokens
    assert four.kv_read_seconds_per_token == pytest.approx(one.kv_read_seconds_per_token / 4)


def test_faster_memory_makes_decoding_faster():
    """GPUs with more bandwidth decode faster."""
    alphas = [engine(gpu).alpha_seconds for gpu in ("MI300X", "H200", "H100", "A100", "L40S")]
    assert alphas == sorted(alphas)


def test_tied_embeddings_are_kept_once():
    """A model that shares input and output embeddings needs less memory, by one embedding."""
    tied = MODELS["Granite-3.1-8B"]
    apart = replace(tied, tied=False, parameters=tied.parameters + tied.embedding)
    assert apart.body == tied.body
    assert engine("L40S", apart).kv_cache_tokens < engine("L40S", tied).kv_cache_tokens
    assert engine("L40S", apart).alpha_seconds == engine("L40S", tied).alpha_seconds


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gpu": "V100"}, "no GPU is called 'V100'; there are H100"),
        ({"gpu": "H100", "model": "Llama-9"}, "no model is called 'Llama-9'; there are Llama-3.1-8B"),
        ({"gpu": "A100", "precision": Precision.FP8}, "does not multiply in fp8"),
        ({"gpu": "H100", "model": "Llama-3.1-70B"}, "KV cache"),
    ],
)
def test_what_is_impossible_is_refused(arguments, message):
    """The error for an unknown name has the known names. Weights that do not fit leave no KV cache."""
    with pytest.raises(ValueError, match=message):
        engine(**arguments)


def test_limits_of_the_scheduler_are_vllms_defaults():
    """The limits are larger on a GPU with at least 70 GiB, except for the A100."""
    for gpu in GPUS:
        parameters = engine(gpu, max_model_len=2048)
        large = GPUS[gpu].memory_bytes >= 70 * 2**30 and not gpu.startswith("A100")
        expected = (1024, 8192) if large else (256, 2048)
        assert (parameters.max_num_seqs, parameters.max_num_batched_tokens) == expected, gpu

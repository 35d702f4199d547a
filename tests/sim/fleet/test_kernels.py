"""Step times of measured kernels: the linear step that is fitted to them, and what is said where there are none."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from wva.sim.fleet import kernels
from wva.sim.fleet.accelerators import Precision, engine_parameters
from wva.sim.fleet.kernels import fitted, with_kernels

ENGINE = engine_parameters("H100", "Llama-3.1-8B")


class LinearSteps:
    """Answers as an engine of the simulation would, in milliseconds; ``curved`` makes large batches cheaper."""

    def __init__(self, engine=ENGINE, *, curved=1.0):
        """Take the engine whose steps these are."""
        self.engine, self.curved = engine, curved

    def decode_step_latency(self, sequences, context, output):
        """Return the step of so many sequences."""
        assert output == 2, "one token is there, one is made"
        one = self.engine.beta_seconds_per_sequence + self.engine.kv_read_seconds_per_token * context
        return 1000 * (self.engine.alpha_seconds + one * sequences**self.curved)

    def mixed_step_latency(self, tokens, sequences, prompt, output):
        """Return the same with the tokens of a whole prompt."""
        assert tokens == prompt
        pairs = self.engine.attention_seconds_per_token_pair * prompt**2 / 2
        added = self.engine.prefill_seconds_per_token * prompt + pairs
        return self.decode_step_latency(sequences, prompt, output) + 1000 * added


def test_a_linear_engine_is_found_again():
    """Whatever the start is; memory and limits stay."""
    start = engine_parameters("A100", "Llama-3.1-8B")
    found = fitted(start, LinearSteps())
    for name in ("alpha", "beta", "kv_read", "prefill", "attention"):
        (attribute,) = [each for each in ENGINE.__dataclass_fields__ if each.startswith(name)]
        assert getattr(found, attribute) == pytest.approx(getattr(ENGINE, attribute), rel=1e-6)
    assert (found.num_gpu_blocks, found.max_num_seqs) == (start.num_gpu_blocks, start.max_num_seqs)


def test_no_factor_is_below_zero():
    """Steps that bend would have one; the engine refuses it."""
    found = fitted(ENGINE, LinearSteps(curved=0.2))
    assert min(found.beta_seconds_per_sequence, found.kv_read_seconds_per_token) >= 0


@pytest.fixture
def library(monkeypatch):
    """Put a library in place that knows one model, and return what it was asked."""
    asked = []

    def build(*words, **named):
        asked.append((words, named))
        if "70B" in words[0]:
            raise RuntimeError("no such table")
        return LinearSteps()

    sdk = ModuleType("aiconfigurator_core.sdk")
    sdk.EngineHandle = SimpleNamespace(compile=build)
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", ModuleType("aiconfigurator_core"))
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk", sdk)
    monkeypatch.setattr(kernels, "library_version", lambda: "0.12.0")
    return asked


def test_the_library_is_asked_by_its_own_names(library):
    """The hub's name of the model, its name of the GPU, the GPUs of a replica and the precision."""
    with_kernels(ENGINE, "Llama-3.1-8B", "H100", gpus=2, precision=Precision.FP8)
    (asked,) = library
    assert asked == (("meta-llama/Meta-Llama-3.1-8B", "h100_sxm", "vllm"), {"tp_size": 2, "gemm_quant_mode": "fp8"})


@pytest.mark.parametrize(
    ("model", "gpu", "told"),
    [
        ("Llama-3.1-8B", "MI300X", "has no MI300X; it has H100, H200, A100, L40S"),
        ("Granite-3.1-8B", "H100", "has no Granite-3.1-8B; it has Llama-3.1-8B"),
        ("Llama-3.1-70B", "H100", "aiconfigurator-core: no such table"),
    ],
)
def test_what_the_library_does_not_know_is_a_sentence(library, model, gpu, told):
    """Its own errors are passed on."""
    with pytest.raises(ValueError, match=told):
        with_kernels(ENGINE, model, gpu, gpus=1, precision=Precision.BF16)
    assert len(library) <= 1


def test_without_the_library_the_error_says_how_to_get_it(monkeypatch):
    """It is no dependency."""
    monkeypatch.setattr(kernels, "library_version", lambda: None)
    with pytest.raises(ValueError, match="is not installed: pip install aiconfigurator-core"):
        with_kernels(ENGINE, "Llama-3.1-8B", "H100", gpus=1, precision=Precision.BF16)

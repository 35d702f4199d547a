"""The fit finds the parameters of engines from their metrics."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.backtest.conftest import MINUTES, ODD
from tests.sim.backtest.engines import MODEL, NAMESPACE, START, write
from wva.model.records import replace
from wva.sim.backtest.fetch import ModelSpan, fetch
from wva.sim.backtest.fit import ENOUGH_SAMPLES, fit
from wva.sim.backtest.history import RecordedHistory, history
from wva.sim.fleet.parameters import PRESETS

SPAN = ModelSpan(NAMESPACE, MODEL, START, START + 60 * MINUTES - 30)


@pytest.fixture
async def found(client, clock, tmp_path) -> RecordedHistory:
    """Return the history of two engines that no preset is like."""
    return history(SPAN, await fetch(client, SPAN, tmp_path, clock=clock))


def test_an_engine_is_found_again(found):
    """The fit finds the parameters within a few percent, and reports small errors for all signals."""
    (variant,) = found.variants
    told = fit(variant, found)
    assert told.samples > ENOUGH_SAMPLES
    assert told.parameters.kv_cache_tokens == ODD.kv_cache_tokens
    assert told.parameters.alpha_seconds == pytest.approx(ODD.alpha_seconds, rel=0.05)
    assert told.parameters.prefill_seconds_per_token == pytest.approx(ODD.prefill_seconds_per_token, rel=0.1)
    assert [error.signal for error in told.errors] == [
        "time between tokens",
        "time to first token",
        "tokens per second",
        "KV usage",
    ]
    assert all(error.error < 0.05 for error in told.errors)


def test_more_hits_than_queries_are_all_of_them(found):
    """More cache hits than queries count as all of them. The two counters may come from different scrapes."""
    (variant,) = found.variants
    many, few = np.full(SPAN.count, 100.0), np.full(SPAN.count, 1.0)
    pods = tuple(
        replace(pod, signals=pod.signals | {"prefix_hits": many, "prefix_queries": few}) for pod in variant.pods
    )
    assert fit(replace(variant, pods=pods), found).parameters.alpha_seconds > 0


def test_a_size_that_nothing_tells_is_found_by_usage(found):
    """Without cache_config_info the fit finds the cache size by its usage."""
    (variant,) = found.variants
    unknown = replace(variant, pods=tuple(replace(pod, kv_cache_tokens=None) for pod in variant.pods))
    told = fit(unknown, found)
    assert told.parameters.kv_cache_tokens == pytest.approx(ODD.kv_cache_tokens, rel=0.05)
    assert any("cache_config_info is not there" in note for note in told.notes)


def test_too_little_load_leaves_the_preset(found):
    """With too few samples the fit keeps the preset and names the reason."""
    (variant,) = found.variants
    silent = {
        name: column * 0.0 if name == "ttft_count" else column for name, column in variant.pods[0].signals.items()
    }
    idle = replace(variant, accelerator="L40S", pods=(replace(variant.pods[0], signals=silent),))
    told = fit(idle, found)
    assert told.parameters.alpha_seconds == PRESETS["L40S"].alpha_seconds
    assert (told.samples, told.errors) == (0, ())
    assert "fewer than" in told.notes[-1]


async def test_reading_the_cache_is_told_apart_from_sequences(prometheus, client, clock, tmp_path):
    """The fit explains the step time even where it cannot separate the two causes."""
    heavy = replace(ODD, kv_read_seconds_per_token=2e-7)
    write(prometheus.tsdb, {"deep-1-a": heavy, "deep-1-b": heavy}, minutes=MINUTES)
    wide = history(SPAN, await fetch(client, SPAN, tmp_path, clock=clock))
    deep = next(variant for variant in wide.variants if variant.name == "deep")
    told = fit(deep, wide)
    assert {error.signal: error.error < 0.05 for error in told.errors}["time between tokens"]


def test_a_known_model_is_begun_with_its_own_engine(found):
    """The fit begins with the engine derived from GPU and model, if this is better than the preset."""
    (variant,) = found.variants
    span = replace(found.span, model_id="org/Llama-3.1-8B-Instruct")
    named = replace(found, span=span)
    assert fit(replace(variant, accelerator="L40"), named).prior.startswith("Llama-3.1-8B on ")
    assert fit(replace(variant, accelerator="H100"), named).errors[0].error < 0.05
    unknown = fit(replace(variant, accelerator="TPU"), named)
    assert unknown.prior == "A100"
    assert "no engine is known for accelerator 'TPU'" in unknown.notes[0]

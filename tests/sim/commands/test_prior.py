"""``wva prior``: what a replica will carry before any traffic."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.conftest import ROOT
from wva.sim.fleet import kernels, prior
from wva.sim.fleet.accelerators import GPUS, MODELS, engine_parameters
from wva.sim.fleet.calibration import saturation
from wva.sim.fleet.prior import KERNEL_ERRORS, MEASURED_ERRORS, SIZES, StepTimes, measured_error


def asked(wva, *words):
    """Return the answer as JSON."""
    outcome = wva("prior", *words, "--output", "json")
    assert (outcome.status, outcome.err) == (0, "")
    return json.loads(outcome.out)


def test_a_replica_in_words(wva):
    """Each figure has its unit, and the answer says where it is from and what it is worth."""
    outcome = wva("prior", "Llama-3.1-70B", "H100", "--gpus", "4")
    assert (outcome.status, outcome.err) == (0, "")
    first, within, most, alone, cache, origin, error = outcome.out.splitlines()
    assert first == "one replica: Llama-3.1-70B in bf16 on 4 x H100; requests of 512 + 256 tokens"
    pattern = r" +[\d.]+ requests/s within 100ms between tokens \(\d+ at a time, [\d.]+ ms between tokens\)"
    assert re.fullmatch(pattern, within)
    assert most == "   18.6 requests/s at most: beyond that its queue grows"
    assert alone.endswith(" ms to the first token of a request alone, without server and network")
    assert cache.endswith(" tokens fit into its KV cache")
    assert origin.startswith("from: data sheet of the GPU and configuration of the model")
    assert error.startswith("error: 5 % on average over 21 published figures on H100 with models of this size")


def test_the_figures_are_those_of_the_simulated_engine(wva):
    """The most is where its slots or its KV cache are full."""
    found = asked(wva, "Llama-3.1-8B", "A100", "--prompt-tokens", "1155", "--output-tokens", "211")
    expected = saturation(engine_parameters("A100", "Llama-3.1-8B"), prompt_tokens=1155, output_tokens=211)
    assert found["at_most"]["requests_per_second"] == expected.requests_per_second
    assert (found["gpus"], found["precision"]) == (1, "bf16")


def test_an_objective_lowers_what_is_carried(wva):
    """The load is the highest within it; one that not even one request alone meets leaves nothing."""
    found = asked(wva, "Llama-3.1-8B", "A100", "--itl", "30ms")
    assert found["within_objective"]["inter_token_latency_seconds"] == pytest.approx(0.03)
    assert found["within_objective"]["requests_per_second"] < found["at_most"]["requests_per_second"]
    assert asked(wva, "Llama-3.1-8B", "A100", "--itl", "1ms")["within_objective"] is None
    told = wva("prior", "Llama-3.1-8B", "A100", "--itl", "1ms").out.splitlines()[1]
    assert told.startswith("  nothing within 1ms between tokens: a request alone has ")


@pytest.mark.parametrize(("model", "gpu", "gpus"), [("Llama-3.1-8B", "L40S", 1), ("Llama-3.1-70B", "H100", 2)])
def test_the_fewest_gpus_that_hold_the_model(wva, model, gpu, gpus):
    """Without ``--gpus``."""
    assert asked(wva, model, gpu)["gpus"] == gpus


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B"])
def test_a_model_may_have_its_name_of_the_hub(wva, name):
    """An instructed model computes the same."""
    assert asked(wva, name, "h100")["model"] == "Llama-3.1-8B"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("gpt-9", "H100"), f"MODEL='gpt-9': expected one of {', '.join(MODELS)}"),
        (("Qwen3-32B", "T4"), f"GPU='T4': expected one of {', '.join(GPUS)}"),
        (("Qwen3-32B", "A100", "--precision", "fp8"), "Qwen3-32B in fp8 on A100: this GPU does not multiply in fp8"),
        (("Llama-3.1-70B", "L40S", "--gpus", "1"), "does not fit into the KV cache"),
        (("Qwen3-32B", "H100", "--itl", "soon"), "--itl='soon': "),
        (("Qwen3-32B", "H100", "--itl", "0s"), "--itl='0s': expected a duration above zero"),
        (("Qwen3-32B", "H100", "--gpus", "0"), "'0': expected a whole number"),
        (("Qwen3-8B", "H100", "--from", "aiconfigurator-core"), "aiconfigurator-core is not installed: pip install"),
    ],
)
def test_what_is_not_known_is_a_sentence(wva, words, told):
    """With what is known, and status 2."""
    outcome = wva("prior", *words)
    assert (outcome.status, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert told in line


def test_the_errors_are_those_of_the_page():
    """The page's table is made from the measurements; what was not measured has no error here."""
    page = (ROOT / "docs" / "physics.md").read_text(encoding="utf-8")
    table = page.partition("<!-- pairs -->")[2].partition("<!-- /pairs -->")[0]
    cells = [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if " % (" in line]
    found = {}
    for _, gpu, size, _, _, error, *_ in cells:
        percent, figures = re.fullmatch(r"(\d+) % \((\d+)\)", error).groups()
        found[gpu, size] = (float(percent), int(figures))
    assert found == {key: (each.percent, each.figures) for key, each in MEASURED_ERRORS.items()}
    assert {size for _, size in found} == set(SIZES)
    assert measured_error("Qwen3-32B", "H100") is None
    assert measured_error("Llama-2-7B", "H100") == MEASURED_ERRORS["H100", "8B"]


def test_the_errors_of_measured_kernels_are_those_of_the_page():
    """They stand beside those of the data sheet."""
    page = (ROOT / "docs" / "physics.md").read_text(encoding="utf-8")
    rows = page.partition("<!-- kernels -->")[2].partition("<!-- /kernels -->")[0].splitlines()
    cells = [[cell.strip() for cell in row.split("|")] for row in rows if " % |" in row]
    found = {(gpu, size): (error, int(figures)) for _, gpu, size, error, _, figures, _ in cells}
    assert found == {key: (f"{each.percent} %", each.figures) for key, each in KERNEL_ERRORS.items()}
    assert measured_error("Qwen3-8B", "A100", StepTimes.KERNELS) == KERNEL_ERRORS["A100", "8B"]


def test_step_times_of_measured_kernels(wva, monkeypatch):
    """The answer names the library and its version, and the error of such figures."""
    monkeypatch.setattr(kernels, "library_version", lambda: "0.12.0")
    twice = engine_parameters("H100", "Llama-3.1-8B")
    monkeypatch.setattr(prior, "with_kernels", lambda *_words, **_named: twice)
    found = asked(wva, "Llama-3.1-8B", "A100", "--from", "aiconfigurator-core")
    assert found["from"].startswith("kernels measured by aiconfigurator-core 0.12.0; memory by the data sheet")
    assert found["measured_error"] == {"percent": 5.6, "figures": 9}
    assert found["at_most"]["requests_per_second"] == saturation(twice).requests_per_second

"""The tables of docs/physics.md: accelerators, models, and simulated engines next to published measurements."""

from __future__ import annotations

from functools import cache
from itertools import groupby
from statistics import fmean, median

from tests.docs.markdown import table
from wva.model.objectives import Objectives
from wva.sim.fleet.accelerators import GPUS, MODELS, Precision, engine_parameters
from wva.sim.fleet.calibration import alone_seconds, operating_point, saturation
from wva.sim.fleet.capacity import capacity
from wva.sim.fleet.parameters import PRESETS
from wva.sim.fleet.published import CURRENT, EARLIER_LATENCIES, EARLIER_RATES, LENGTHS, RUSH_LENGTHS, SOURCES, simulated
from wva.sim.fleet.transfer import BYTES_PER_SECOND, DELAY_SECONDS, KvTransfer
from wva.sim.stage.start_ups import START_UPS

PAIRS = (
    ("H100", "Llama-3.1-8B", 1, Precision.BF16),
    ("A100", "Llama-3.1-8B", 1, Precision.BF16),
    ("MI300X", "Llama-3.1-8B", 1, Precision.BF16),
    ("L40S", "Llama-3.1-8B", 1, Precision.BF16),
    ("L40S", "Llama-3.1-8B", 1, Precision.FP8),
    ("H100", "Qwen3-32B", 2, Precision.BF16),
    ("H100", "Llama-3.1-70B", 4, Precision.BF16),
    ("H100", "Llama-3.1-70B", 2, Precision.FP8),
    ("A100", "Llama-3.1-70B", 4, Precision.BF16),
    ("MI300X", "Llama-3.1-70B", 1, Precision.BF16),
)
"""GPU, model, number of GPUs per replica and precision, in the combinations of the scenarios."""

CARRYING = (PAIRS[0], PAIRS[1], PAIRS[2], PAIRS[3], PAIRS[5], PAIRS[6])
"""The pairs in the tables of capacity and of the KV cache."""

USAGES = (0.1, 0.2, 0.3, 0.5, 0.7)
"""Used shares of the KV cache, the columns of its table."""

COVERED = ("H100", "A100", "L40S", "MI300X")
"""The GPUs that the table lists even without measurements."""

SIZES_OF_MODELS = {"8B": (6, 9), "70B": (60, 80)}
"""Least and most billions of parameters, by name of the size."""

SIZES = ((512, 256), (1155, 211))
"""Tokens of prompt and answer in the table of capacities."""

UNITS = {
    "latency": ("latency", 1.0, "s"),
    "requests_per_second": ("throughput", 1.0, "requests/s"),
    "output_tokens_per_second": ("throughput", 1.0, "tokens/s"),
    "ttft": ("mean TTFT", 1000.0, "ms"),
    "ttft_p99": ("p99 of TTFT", 1000.0, "ms"),
    "tpot": ("time per token", 1000.0, "ms"),
}


def number(value):
    """Return a number with three digits, and without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def share(error):
    """Return a relative error in percent."""
    return f"{100 * error:+.0f} %"


@cache
def error(measurement):
    """Return the relative error of the simulation of a measurement."""
    return simulated(measurement) / measurement.value - 1


def gpus_table():
    """Return the numbers of each GPU: first those of its data sheet, then the fitted ones."""
    rows = [
        (
            name,
            f"{gpu.memory_bytes / 2**30:.1f}",
            f"{gpu.bandwidth / 1e12:.3f}",
            f"{gpu.bf16_flops / 1e12:.0f}",
            f"{gpu.fp8_flops / 1e12:.0f}" if gpu.fp8_flops else "-",
            f"{gpu.link / 1e9:.0f}",
            f"{gpu.price:.1f}",
            f"{gpu.memory_share:.2f}",
            f"{gpu.compute_share:.2f}",
            f"{gpu.layer_seconds * 1e6:.0f}",
            f"{gpu.all_reduce_seconds * 1e6:.0f}",
            f"{gpu.sequence_seconds * 1e6:.0f}",
        )
        for name, gpu in GPUS.items()
    ]
    header = (
        "GPU",
        "Memory, GiB",
        "Bandwidth, TB/s",
        "bf16, TFLOPS",
        "fp8, TFLOPS",
        "Link, GB/s",
        "Price, $/h",
        "Memory share",
        "Compute share",
        "Layer, µs",
        "All-reduce, µs",
        "Sequence, µs",
    )
    return table(header, rows)


def models_table():
    """Return the configuration of each model."""
    rows = [
        (
            name,
            f"{model.parameters / 1e9:.2f}",
            f"{model.layers}",
            f"{model.hidden}",
            f"{model.heads}",
            f"{model.kv_heads}",
            f"{model.vocabulary}",
            f"{4 * model.layers * model.kv_heads * model.head_size / 1024:.0f}",
        )
        for name, model in MODELS.items()
    ]
    header = (
        "Model",
        "Parameters, 10⁹",
        "Layers",
        "Hidden",
        "Heads",
        "KV heads",
        "Vocabulary",
        "KV cache per token, KiB",
    )
    return table(header, rows)


def _engine(pair):
    gpu, model, gpus, precision = pair
    return engine_parameters(gpu, model, tensor_parallel=gpus, precision=precision)


def _setup(gpu, model, gpus, precision):
    return f"{gpus} x {gpu}, {model}, {precision}"


def _measured(setup):
    return _setup(setup.gpu, setup.model, setup.tensor_parallel, setup.precision)


def engines_table():
    """Return the derived engine parameters of PAIRS."""
    rows = []
    for pair in PAIRS:
        engine = _engine(pair)
        rows.append(
            (
                _setup(*pair),
                f"{engine.alpha_seconds * 1e3:.2f}",
                f"{engine.beta_seconds_per_sequence * 1e6:.1f}",
                f"{engine.kv_read_seconds_per_token * 1e9:.1f}",
                f"{engine.prefill_seconds_per_token * 1e6:.1f}",
                f"{engine.attention_seconds_per_token_pair * 1e9:.2f}",
                f"{engine.num_gpu_blocks}",
                f"{engine.kv_cache_tokens // 1000}",
            )
        )
    header = (
        "Engine",
        "alpha, ms",
        "beta, µs",
        "kv_read, ns",
        "prefill, µs",
        "attention, ns",
        "KV blocks",
        "KV cache, 10³ tokens",
    )
    return table(header, rows)


def capacities_table():
    """Return the capacity of one replica in requests per second, for each of SIZES."""
    rows = []
    for pair in CARRYING:
        carried = [
            capacity(_engine(pair), prompt_tokens=prompt, output_tokens=output, objectives=Objectives())
            for prompt, output in SIZES
        ]
        rows.append((_setup(*pair), *map(number, carried)))
    return table(("Engine", *(f"{prompt} / {output}" for prompt, output in SIZES)), rows)


def kv_cache_table():
    """Return, for each KV cache usage, the rate at which a replica shows it, as a share of its highest rate."""
    rows = []
    for title, engine in (*((_setup(*pair), _engine(pair)) for pair in CARRYING), *_presets()):
        most = saturation(engine).requests_per_second
        points = [operating_point(engine, kv_cache_usage=usage) for usage in USAGES]
        cells = [
            f"{100 * point.requests_per_second / most:.0f} %" if point.kv_cache_usage > usage - 0.01 else "-"
            for usage, point in zip(USAGES, points, strict=True)
        ]
        full = saturation(engine)
        rows.append((title, *cells, f"{most:.1f}", f"{full.kv_cache_usage:.2f}"))
    header = ("Engine", *(f"KV {usage:g}" for usage in USAGES), "Most, requests/s", "KV there")
    return table(header, rows)


def _presets():
    return tuple((f"preset {name}", engine) for name, engine in PRESETS.items())


def errors_table():
    """Return the errors of each group of measurements."""
    groups = (
        ("V1 engine: latency, throughput, time per token", [each for each in CURRENT if "ttft" not in each.figure]),
        ("V1 engine: time to the first token", [each for each in CURRENT if "ttft" in each.figure]),
        ("V0 engine: latency of one request, or of eight", EARLIER_LATENCIES),
        ("V0 engine: throughput", EARLIER_RATES),
    )
    rows = []
    for title, measurements in groups:
        errors = [abs(error(each)) for each in measurements]
        rows.append(
            (
                title,
                f"{len(errors)}",
                f"{100 * fmean(errors):.1f} %",
                f"{100 * median(errors):.1f} %",
                f"{100 * max(errors):.0f} %",
            )
        )
    return table(("Measurements", "Figures", "Mean absolute error", "Median", "Largest"), rows)


def pairs_table():
    """Return the measurements of each GPU and size of model, their sources, and the mean error of the simulation."""
    groups = {(gpu, size): [] for gpu in COVERED for size in SIZES_OF_MODELS}
    for each in (*CURRENT, *EARLIER_LATENCIES, *EARLIER_RATES):
        billions = MODELS[each.setup.model].parameters / 1e9
        for size, (least, most) in SIZES_OF_MODELS.items():
            if least <= billions <= most:
                groups.setdefault((each.setup.gpu, size), []).append(each)
    rows = []
    for (gpu, size), group in sorted(groups.items()):
        first = [each for each in group if "ttft" in each.figure]
        rates = [each for each in group if each in EARLIER_RATES]
        rest = [each for each in group if each not in first and each not in rates]
        engines = dict.fromkeys(_measured(each.setup).partition(" x ")[2].partition(", ")[2] for each in group)
        counts = sorted({each.setup.tensor_parallel for each in group})
        sources = dict.fromkeys(each.source for each in group)
        rows.append(
            (
                gpu,
                size,
                "; ".join(engines) or "nothing",
                ", ".join(map(str, counts)) or "-",
                *(_mean_error(part) for part in (rest, first, rates)),
                ", ".join(f"[{source}]({SOURCES[source]})" for source in sources) or "-",
            )
        )
    header = (
        "GPU",
        "Size",
        "Measured",
        "GPUs",
        "Latency, throughput, time per token",
        "Time to first token",
        "Throughput of V0",
        "Sources",
    )
    return table(header, rows)


def _mean_error(measurements):
    if not measurements:
        return "-"
    return f"{100 * fmean(abs(error(each)) for each in measurements):.0f} % ({len(measurements)})"


def _load(load):
    sizes = f"{load.prompt_tokens} / {load.output_tokens}"
    if load.users:
        return f"{sizes}, {load.users} users"
    if load.rate != float("inf"):
        return f"{sizes}, {load.rate:g} requests/s"
    return f"{sizes}, {load.requests} at once"


def current_table():
    """Return each measurement of the V1 engine next to the simulated number."""
    rows = []
    for each in CURRENT:
        title, factor, unit = UNITS[each.figure]
        setup = each.setup
        ours = each.value * (1 + error(each))
        rows.append(
            (
                f"[{each.source}]({SOURCES[each.source]})",
                _measured(setup),
                _load(each.load),
                f"{title}, {unit}",
                number(each.value * factor),
                number(ours * factor),
                share(error(each)),
            )
        )
    return table(("Source", "Engine", "Load", "Figure", "Published", "Simulated", "Error"), rows)


def _by_lengths(measurements, known):
    rows = []
    for (source, setup), group in groupby(measurements, key=lambda each: (each.source, each.setup)):
        cells = {(each.load.prompt_tokens, each.load.output_tokens): each for each in group}
        if set(cells) <= set(known):
            found = [cells.get(lengths) for lengths in known]
            rows.append(
                (
                    f"[{_measured(setup)}]({SOURCES[source]})",
                    *(f"{each.value:g} ({share(error(each))})" if each else "-" for each in found),
                )
            )
    return table(("Engine", *(f"{prompt} / {output}" for prompt, output in known)), rows)


def earlier_latencies_table():
    """Return the latency of single requests on the V0 engine, with the error of the simulation."""
    return _by_lengths(EARLIER_LATENCIES, LENGTHS)


def earlier_batches_table():
    """Return the latency of eight requests on the V0 engine, with the error of the simulation."""
    rows = [
        (
            f"[{_measured(each.setup)}]({SOURCES[each.source]})",
            number(each.value),
            number(each.value * (1 + error(each))),
            share(error(each)),
        )
        for each in EARLIER_LATENCIES
        if each.source.startswith("ci-")
    ]
    return table(("Engine", "Published, s", "Simulated, s", "Error"), rows)


def earlier_rates_table():
    """Return the highest rate of requests on the V0 engine, with the error of the simulation."""
    return _by_lengths(EARLIER_RATES, RUSH_LENGTHS)


def start_ups_table():
    """Return how long pods take to start."""
    rows = [
        (
            model,
            f"{start.median_seconds:.0f}",
            f"{start.sigma:g}",
            f"{100 * start.pull_probability:.0f} %",
            f"{start.pull_seconds:.0f}",
        )
        for model, start in START_UPS.items()
    ]
    return table(("Model", "Median, s", "Spread", "Image not on the node", "Pull, s"), rows)


def handover_table():
    """Return what published handovers take beside those of the simulation, for the same prompt where it is known."""
    prefill, decode, both = (
        engine_parameters("H100", "Qwen3-32B", tensor_parallel=gpus, max_model_len=16384) for gpus in (1, 2, 2)
    )
    transfer = KvTransfer.of("Qwen3-32B")
    tokens = 8192
    alone = alone_seconds(both, tokens)
    apart = alone_seconds(prefill, tokens) + transfer.seconds(tokens) + decode.alpha_seconds
    rows = [
        ("NixlConnector, transfer of 167 MB", 0.0387, 167e6 / BYTES_PER_SECOND, "source of the rate"),
        ("The same setup, handover at the median", 0.197, DELAY_SECONDS + 0.029 + 0.058, "source of the delay"),
        ("llm-d, no roles: first token of 8,192 tokens", tokens / 15472, alone, ""),
        ("llm-d, roles, in a table of its guide", tokens / 2696, apart, ""),
        ("llm-d, roles, benchmark of a fixed fleet", tokens / 1371, apart, ""),
        ("llm-d, roles, benchmark with autoscaling", tokens / 1182, apart, ""),
    ]
    shown = [
        (what, f"{found:.2f} s", f"{ours:.2f} s", note or share(ours / found - 1)) for what, found, ours, note in rows
    ]
    shown += [
        ("DistServe, OPT-175B, 95 % of the transfers", "below 0.03 s", "-", "NVLink, within a node"),
        ("Splitwise, A100 and H100, not overlapped", "0.008 and 0.005 s", "-", "layer by layer"),
    ]
    return table(("Published", "Took", "Simulated", "Error"), shown)


TABLES = {
    "handover": handover_table,
    "errors": errors_table,
    "pairs": pairs_table,
    "current": current_table,
    "earlier-latencies": earlier_latencies_table,
    "earlier-batches": earlier_batches_table,
    "earlier-rates": earlier_rates_table,
    "gpus": gpus_table,
    "models": models_table,
    "engines": engines_table,
    "capacities": capacities_table,
    "kv-cache": kv_cache_table,
    "start-ups": start_ups_table,
}

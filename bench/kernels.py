"""How far engines with measured kernels are from published measurements, beside those of data sheets.

By hand, in an environment with the library: ``pip install aiconfigurator-core`` and ``python -m bench.kernels``.
"""

from __future__ import annotations

from functools import cache
from statistics import fmean

from wva.sim.fleet.kernels import KNOWN, LIBRARY, SYSTEMS, library_version, with_kernels
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.prior import size_of
from wva.sim.fleet.published import (
    CURRENT,
    EARLIER_LATENCIES,
    Measurement,
    Setup,
    data_sheet_engine,
    simulated,
)


@cache
def kernel_engine(setup: Setup) -> EngineParameters:
    """Return the engine of a setup with measured kernels."""
    return with_kernels(
        data_sheet_engine(setup), setup.model, setup.gpu, gpus=setup.tensor_parallel, precision=setup.precision
    )


def main() -> None:
    """Print the mean absolute errors by GPU and size of the model, and of all."""
    errors: dict[tuple[str, str], list[tuple[float, float]]] = {}
    refused: dict[str, int] = {}
    for each in (*CURRENT, *EARLIER_LATENCIES):
        if each.setup.gpu not in SYSTEMS or each.setup.model not in KNOWN or each.figure.startswith("ttft"):
            continue
        try:
            pair = tuple(abs(found / each.value - 1) for found in _both(each))
        except ValueError as error:
            refused[str(error)] = refused.get(str(error), 0) + 1
            continue
        errors.setdefault((each.setup.gpu, size_of(each.setup.model)), []).append((pair[0], pair[1]))
    print(f"{LIBRARY} {library_version()}; mean absolute error, figures")
    for (gpu, size), found in sorted(errors.items()):
        _line(f"{gpu} {size}", found)
    _line("all", [pair for found in errors.values() for pair in found])
    for words, count in refused.items():
        print(f"left out: {count} figures: {words}")


def _both(measurement: Measurement) -> tuple[float, float]:
    return simulated(measurement, kernel_engine), simulated(measurement)


def _line(name: str, errors: list[tuple[float, float]]) -> None:
    kernels, sheet = (100 * fmean(values) for values in zip(*errors, strict=True))
    print(f"{name:10} kernels {kernels:5.1f} %  data sheet {sheet:5.1f} %  {len(errors):3d} figures")


if __name__ == "__main__":
    main()

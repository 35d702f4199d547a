"""Published statistics of traces of LLM serving, as constants. The traces themselves are not here.

- Azure 2023 and 2024: the LLM inference traces of Microsoft Azure (github.com/Azure/AzurePublicDataset, CC-BY). The
  statistics of 2023 were computed from its two files, an hour of a conversation and of a code service. The data of
  2024 are one week; its hourly rates were read off the published plots, its lengths off the published distributions.
- BurstGPT: arXiv 2401.17644. Its generator draws gaps from a Gamma and lengths from a Zipf distribution.
- Mooncake: FAST 2025, one hour each of three services. Means of lengths and achievable hit ratios are of the whole
  traces, quantiles of 208 prompts and 132 answers of one of them.

Lengths are (share, tokens) for ``lengths.quantiles``. The log-normal fits of these traces miss them: for the prompts of
Azure's conversations the fit (6.633, 0.985) has a median of 760 tokens, and the trace has 1,020. So the quantiles
themselves are used. Points that no source names are marked; they were chosen so that the mean is right.
"""

from __future__ import annotations

from typing import Final, NamedTuple

Quantiles = tuple[tuple[float, float], ...]


class TraceLengths(NamedTuple):
    """Quantiles of the lengths of prompts and of answers."""

    prompt: Quantiles
    output: Quantiles


AZURE_2023_CONVERSATION: Final = TraceLengths(
    prompt=(
        *((0.0, 1.0), (0.05, 181.0), (0.25, 396.0), (0.5, 1020.0), (0.75, 1189.0), (0.9, 2734.0), (0.95, 4083.0)),
        *((0.99, 4142.0), (0.999, 4300.0), (1.0, 14050.0)),  # 0.999 chosen: the mean
    ),
    output=(
        *((0.0, 1.0), (0.05, 41.0), (0.25, 85.0), (0.5, 129.0), (0.75, 395.0), (0.9, 424.0), (0.95, 451.0)),
        *((0.99, 601.0), (1.0, 1000.0)),
    ),
)
AZURE_2023_CODE: Final = TraceLengths(
    prompt=(
        *((0.0, 3.0), (0.05, 75.0), (0.25, 578.0), (0.5, 1469.0), (0.75, 2744.0), (0.9, 5187.0), (0.95, 7303.0)),
        *((0.99, 7436.0), (1.0, 7437.0)),
    ),
    output=(
        *((0.0, 1.0), (0.05, 6.0), (0.25, 9.0), (0.5, 13.0), (0.75, 24.0), (0.9, 55.0), (0.95, 90.0), (0.99, 251.0)),
        *((0.9985, 350.0), (1.0, 1899.0)),  # 0.9985 chosen: the mean
    ),
)
AZURE_2024_CONVERSATION: Final = TraceLengths(
    prompt=(
        *((0.0, 1.0), (0.05, 184.0), (0.1, 275.0), (0.25, 524.0)),
        *((0.26, 540.0), (0.44, 620.0)),  # 18 % between 540 and 620
        *((0.5, 897.0), (0.75, 2328.0), (0.9, 3776.0), (0.95, 4880.0), (0.99, 6547.0), (1.0, 7680.0)),
    ),
    output=(
        *((0.0, 1.0), (0.05, 6.0), (0.25, 14.0)),  # chosen: nothing below the median is published
        *((0.5, 33.0), (0.75, 99.0), (0.9, 329.0), (0.95, 443.0), (0.99, 663.0), (1.0, 1500.0)),
    ),
)
AZURE_2024_CODING: Final = TraceLengths(
    prompt=(
        *((0.0, 1.0), (0.05, 104.0), (0.1, 296.0), (0.25, 915.0), (0.5, 1902.0), (0.75, 3315.0), (0.9, 6174.0)),
        *((0.94, 7640.0), (0.95, 7662.0), (0.99, 7680.0), (1.0, 7680.0)),  # 6 % at the limit of about 7,680
    ),
    output=(
        *((0.0, 1.0), (0.05, 6.0), (0.25, 9.0), (0.5, 13.0), (0.75, 22.0)),  # as in 2023: not published
        *((0.9, 33.0), (0.95, 67.0), (0.99, 241.0), (1.0, 1500.0)),
    ),
)
MOONCAKE: Final = TraceLengths(
    prompt=(
        *((0.0, 100.0), (0.05, 1000.0), (0.25, 4000.0), (0.5, 8400.0), (0.75, 15700.0), (0.9, 25400.0)),
        *((0.95, 29100.0), (1.0, 87000.0)),
    ),
    # A spike at 3 to 10 tokens, then nearly normal, 350 with a standard deviation of 200.
    output=(
        *((0.0, 3.0), (0.08, 10.0), (0.1, 60.0), (0.25, 215.0), (0.5, 346.0), (0.75, 485.0), (0.9, 597.0)),
        *((0.99, 815.0), (1.0, 1100.0)),
    ),
)

DAYS: Final = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")


def _week(*days: str) -> tuple[float, ...]:
    return tuple(float(value) for day in days for value in day.split())


# Rate of each hour over the mean of the week, Sunday 00:00 first.
AZURE_2024_CODING_WEEK: Final = _week(
    "0.48 0.51 0.47 0.44 0.38 0.31 0.24 0.16 0.12 0.12 0.13 0.14"
    " 0.21 0.28 0.36 0.43 0.47 0.47 0.55 0.57 0.64 0.67 0.64 0.61",
    "0.66 0.67 0.67 0.58 0.51 0.40 0.32 0.32 0.29 0.29 0.29 0.45"
    " 0.77 1.41 1.96 2.31 2.17 2.40 2.72 2.80 2.63 2.05 1.57 1.13",
    "1.00 1.05 0.94 0.68 0.54 0.43 0.36 0.29 0.27 0.31 0.33 0.48"
    " 0.89 1.66 2.41 2.44 2.12 2.60 2.95 2.99 2.71 1.95 1.48 1.12",
    "1.01 0.89 0.83 0.76 0.58 0.45 0.40 0.32 0.32 0.28 0.34 0.46"
    " 0.86 1.52 2.06 2.30 2.37 2.54 2.89 2.99 2.93 2.21 1.43 1.08",
    "0.94 0.83 0.86 0.72 0.53 0.48 0.42 0.34 0.31 0.32 0.32 0.47"
    " 0.93 1.40 2.08 2.32 2.19 2.55 2.83 2.90 2.62 1.93 1.38 1.06",
    "0.77 0.79 0.69 0.58 0.46 0.40 0.33 0.30 0.26 0.29 0.30 0.40"
    " 0.71 1.19 1.76 1.96 1.81 2.05 2.11 2.17 2.08 1.56 1.13 0.76",
    "0.61 0.56 0.48 0.47 0.39 0.32 0.27 0.20 0.14 0.12 0.10 0.16"
    " 0.26 0.35 0.43 0.47 0.52 0.58 0.62 0.63 0.56 0.53 0.57 0.49",
)
AZURE_2024_CONVERSATION_WEEK: Final = _week(
    "0.56 0.59 0.56 0.50 0.47 0.48 0.50 0.57 0.57 0.55 0.55 0.63"
    " 0.64 0.81 0.75 0.79 0.74 0.76 0.77 0.71 0.69 0.68 0.64 0.77",
    "0.97 1.09 1.10 0.91 0.91 0.99 1.13 1.20 1.26 1.18 1.16 1.23"
    " 1.33 1.48 1.66 1.55 1.36 1.28 1.26 1.24 1.19 0.94 0.92 0.96",
    "1.07 1.12 1.16 0.95 0.94 1.00 1.16 1.30 1.27 1.25 1.17 1.27"
    " 1.45 1.53 1.65 1.55 1.44 1.33 1.41 1.32 1.18 1.04 0.92 0.84",
    "0.99 1.08 1.03 0.86 0.90 0.96 1.10 1.19 1.22 1.23 1.13 1.18"
    " 1.35 1.47 1.52 1.44 1.30 1.22 1.28 1.21 1.07 0.82 0.76 0.84",
    "0.99 1.14 1.10 0.94 0.91 0.98 1.21 1.27 1.39 1.33 1.08 1.10"
    " 1.23 1.48 1.52 1.36 1.26 1.24 1.23 1.14 1.01 0.89 0.78 0.86",
    "1.03 1.09 1.08 0.89 0.90 1.00 1.10 1.22 1.18 1.20 1.06 1.05"
    " 1.17 1.29 1.29 1.23 1.13 1.12 0.98 0.91 0.88 0.74 0.61 0.58",
    "0.57 0.62 0.64 0.53 0.52 0.56 0.56 0.61 0.65 0.57 0.62 0.69"
    " 0.77 0.77 0.83 0.85 0.83 0.76 0.69 0.66 0.69 0.64 0.58 0.55",
)

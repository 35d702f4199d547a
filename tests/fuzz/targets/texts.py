"""Texts with one value: quantities, durations, times, costs, annotations, Prometheus numbers, tokens, addresses."""

from __future__ import annotations

import math

from tests.fuzz.harness import short
from wva.api.meta import ObjectMeta, format_micro_time, format_time, parse_time
from wva.api.scalers import PAUSED_REPLICAS_ANNOTATION, ScaledObject, ScaledObjectSpec, ScaledTarget
from wva.api.variantautoscaling import ScaleTargetRef, VariantAutoscaling, VariantAutoscalingSpec
from wva.collect.inventory import gpu_count, is_gpu_count
from wva.collect.queries import namespace_matcher, quote, regex_literal, validate_namespace
from wva.collect.resolution import (
    MAX_REPLICAS_ANNOTATION,
    MIN_REPLICAS_ANNOTATION,
    ScalerStores,
    bound_problems,
    bounds_of,
)
from wva.collect.variants import COST, cost_problems, parse_cost
from wva.godurations import format_promql_duration, parse_bool, parse_duration, parse_positive_duration
from wva.kube.cache import Store
from wva.model.inventory import normalize_accelerator
from wva.numbers import FINITE, MAX_REPLICAS
from wva.serve.addresses import Address, AddressError
from wva.serve.gate import ALLOWED_SECONDS, accepted_seconds, bearer_token

LONGEST_DURATION_SECONDS = 293 * 366 * 86_400
HIGHEST_PORT = 65535
MOST_GPUS = 1_000_000


def words():
    """Return units, times, numbers, prefixes of GPU names, and pieces of tokens and addresses."""
    yield from (
        "ns",
        "us",
        "\u00b5s",
        "ms",
        "s",
        "m",
        "h",
        "d",
        "1h30m",
        "-",
        "+",
        ".",
        "e",
        "E",
        "1e308",
        "Inf",
        "NaN",
    )
    yield from ("k", "M", "Ki", "m", "2026-01-02T03:04:05Z", "T", "Z", "+23:59", ".000001", "0001-01-01", "9999-12-31")
    yield from ("true", "Yes", "f", "0", "2147483647", "2147483648", "0.9", "_", "0x", "NVIDIA-", "Intel-", "-80GB")
    yield from (
        "Bearer ",
        "eyJleHAiOjF9",
        "eyJleHAiOiJ4In0",
        "127.0.0.1:",
        ":65535",
        "[::1]:",
        '"',
        "\\",
        "\n",
        "{",
        "~",
    )


def check(data):
    """Each reader returns a value within its range, or raises the one error that it declares."""
    text = data.decode("utf-8", errors="replace")
    return sum(reads(text) for reads in (_duration, _boolean, _time, _amounts, _bounds, _promql, _token, _address)) > 0


def _duration(text):
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        short(error)
        return False
    assert abs(seconds) <= LONGEST_DURATION_SECONDS
    try:
        assert parse_positive_duration(text) == seconds > 0
    except ValueError:
        assert seconds <= 0
    written = format_promql_duration(seconds)
    assert written[:-1].isdecimal()
    assert written[-1] in "smhd"
    return True


def _boolean(text):
    try:
        return parse_bool(text) in {True, False}
    except ValueError:
        return False


def _time(text):
    seconds = parse_time(text)
    if seconds is None:
        return False
    assert math.isfinite(seconds)
    assert parse_time(format_time(seconds)) is not None
    assert parse_time(format_micro_time(seconds)) is not None
    return True


def _amounts(text):
    gpus, cost, number = gpu_count(text), parse_cost(text), FINITE.find(text)
    assert isinstance(gpus, int)
    assert 0 <= gpus <= MOST_GPUS
    assert gpus == 0 or is_gpu_count(text)
    assert 0 <= cost <= COST.maximum
    assert number is None or math.isfinite(number)
    assert len(normalize_accelerator(text)) <= len(text)
    return number is not None


def _bounds(text):
    annotations = {MIN_REPLICAS_ANNOTATION: text, MAX_REPLICAS_ANNOTATION: text}
    reference = ScaleTargetRef(kind="Deployment", name="d")
    va = VariantAutoscaling(
        metadata=ObjectMeta(name="va", namespace="ns", annotations=annotations),
        spec=VariantAutoscalingSpec(scale_target_ref=reference, variant_cost=text),
    )
    paused = ScaledObject(
        metadata=ObjectMeta(name="so", namespace="ns", annotations={PAUSED_REPLICAS_ANNOTATION: text}),
        spec=ScaledObjectSpec(scale_target_ref=ScaledTarget(name="d")),
    )
    scalers = ScalerStores(Store(), Store())
    scalers.add_indexes()
    of_annotations = bounds_of(va, scalers)
    scalers.scaled_objects.upsert(paused)
    for bounds in (of_annotations, bounds_of(va, scalers)):
        for bound in (bounds.minimum, bounds.maximum):
            assert bound is None or 0 <= bound <= MAX_REPLICAS
        assert 0 <= bounds.clamp(7) <= MAX_REPLICAS
    told = [*bound_problems(va, scalers), *cost_problems(va)]
    short(*told)
    return of_annotations.minimum is not None


def _promql(text):
    quoted = quote(text)
    assert quoted[0] == quoted[-1] == '"'
    assert "\n" not in quoted
    assert regex_literal(text) is not None
    try:
        name = validate_namespace(text)
    except ValueError as error:
        short(error)
        return False
    return name in namespace_matcher([name])


def _token(text):
    token = bearer_token([text])
    assert token is None or token in text
    assert 0 <= accepted_seconds(text, now=0.0) <= ALLOWED_SECONDS
    return token is not None


def _address(text):
    try:
        address = Address.parse(text, setting="--metrics-bind-address")
    except AddressError:
        return False
    assert address is None or 0 <= address.port <= HIGHEST_PORT
    return address is not None

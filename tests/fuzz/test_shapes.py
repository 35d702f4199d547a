"""The fuzz targets hold their promises for documents of nearly the right shape, which hypothesis draws."""

from __future__ import annotations

import json
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.decide.pipelines import KINDS, cycles_of
from tests.fuzz.harness import be_quiet, play
from tests.fuzz.mutation import EXTREMES
from tests.fuzz.shapes import ANYTHING, TEXT, shaped
from tests.fuzz.targets import config_maps, gateway, kubernetes, prometheus, recordings, settings, texts, vllm_arguments
from wva.kube.errors import _StatusBody
from wva.prometheus.answers import InstantSeries
from wva.scale_from_zero.page import ERROR_METRICS, QUEUE_SIZE_METRICS


@pytest.fixture(autouse=True)
def quiet():
    """Log critical messages only."""
    be_quiet()


def written(document):
    """Return a document as bytes, with NaN and infinities as Python writes them."""
    return json.dumps(document).encode("utf-8", "surrogatepass")


objects = st.sampled_from(kubernetes.KINDS).flatmap(lambda resource: shaped(resource.type))
bodies = st.one_of(
    objects,
    st.fixed_dictionaries({"items": st.lists(objects, max_size=2), "metadata": ANYTHING}),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["ADDED", "DELETED", "BOOKMARK", "ERROR", "x"]),
            "object": objects | shaped(_StatusBody),
        }
    ),
)


@given(bodies)
def test_bodies_of_the_api_server(body):
    """WVA reads objects of every kind, lists, events and refusals as its decoders promise."""
    play(kubernetes, written(body))


@given(
    st.lists(shaped(InstantSeries), max_size=4) | ANYTHING,
    st.sampled_from(["vector", "vector", "matrix"]),
    st.lists(TEXT, max_size=2),
)
def test_answers_of_prometheus(result, kind, warnings):
    """WVA reads series with any labels, values and times as its decoder promises."""
    answer = {"status": "success", "data": {"resultType": kind, "result": result}, "warnings": warnings}
    play(prometheus, written(answer))


labels = st.lists(
    st.tuples(st.sampled_from(["model_name", "target_model_name", "fairness_id", "x"]), TEXT)
    .map(lambda pair: f'{pair[0]}="{pair[1]}"')
    .filter(str.isprintable),
    max_size=3,
).map(",".join)
values = st.sampled_from([str(value) for value in EXTREMES if not isinstance(value, int) or value < sys.maxsize])
names = st.sampled_from([*QUEUE_SIZE_METRICS, *ERROR_METRICS, "up"])
lines = st.tuples(names, labels, values, st.sampled_from(["", " 1", " x"]))
pages = st.lists(lines.map(lambda line: f"{line[0]}{{{line[1]}}} {line[2]}{line[3]}\n"), max_size=6).map("".join)


@given(pages)
def test_pages_of_endpoint_pickers(page):
    """WVA reads pages with the queue metric and others, and with values of every size."""
    play(gateway, page.encode("utf-8", "replace"))


scalars = st.sampled_from(
    [
        "0",
        "1",
        "0.8",
        "1e-300",
        "1e9",
        "-1",
        "true",
        "off",
        '""',
        "10m",
        "1h",
        "-5s",
        ".inf",
        ".nan",
        "m",
        "ns",
        "~",
        "[1]",
    ]
) | st.text(max_size=4)
entries = st.one_of(
    [
        st.dictionaries(st.sampled_from(sorted(fields)), scalars, max_size=5).map(
            lambda entry: "".join(f"{name}: {value}\n" for name, value in entry.items())
        )
        for fields in config_maps.FIELDS
    ]
)
maps = st.dictionaries(st.sampled_from(["default", "m", "a", "b"]), entries, max_size=3)


@given(st.lists(maps, min_size=1, max_size=2))
def test_config_maps(steps):
    """WVA decides with ConfigMaps of every kind whose entries have known fields and any values."""
    play(config_maps, written(steps))


@given(st.dictionaries(st.sampled_from(settings.KEYS), TEXT | scalars, max_size=6))
def test_settings(data):
    """WVA reads any values in the main ConfigMap."""
    play(settings, written(data))


words = st.sampled_from([word for word in vllm_arguments.words() if word.startswith("-")])


@given(st.lists(st.one_of(words, st.tuples(words, scalars).map("=".join), scalars), max_size=8), st.booleans())
def test_arguments_of_vllm(command, in_a_shell):
    """WVA reads vLLM's arguments in any order, with values or without, as words or in a script."""
    play(vllm_arguments, " ".join(command).encode("utf-8", "replace") if in_a_shell else written(command))


@given(
    st.from_regex(r"[-+]?[0-9]{0,25}(\.[0-9]{0,5})?([eE][-+]?[0-9]{1,4})?(ns|ms|s|m|h|k|M|Ki)?", fullmatch=True)
    | st.from_regex(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,7})?)?)?(Z|[-+][0-9]{2}:[0-9]{2})?",
        fullmatch=True,
    )
    | st.from_regex(r"(Bearer )?[!-~]{0,20}(:[0-9]{1,6})?", fullmatch=True)
    | st.text(max_size=20)
)
def test_texts_of_one_value(text):
    """WVA reads numbers with units, times, tokens and addresses."""
    play(texts, text.encode("utf-8", "replace"))


@given(
    st.sampled_from(KINDS).flatmap(cycles_of),
    st.lists(st.tuples(st.integers(0), st.sampled_from(EXTREMES)), max_size=2),
)
def test_recordings(recording, changes):
    """WVA reads a recording in which up to two parts are extremes."""
    document = json.loads(msgspec.json.encode(recording))
    for position, extreme in changes:
        places = list(_places(document))
        holder, key = places[position % len(places)]
        holder[key] = extreme
    play(recordings, written(document))


def _places(value):
    """Yield the parent of each part of a document, and its key or index there."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield value, key
        yield from _places(inner)

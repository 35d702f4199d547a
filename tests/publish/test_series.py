"""WVA writes the text of the series as the library does, and renews it only for changed variants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from tests.publish.collectors import collector
from tests.publish.decisions import decision, decisions
from wva.api.meta import Condition
from wva.model.records import replace
from wva.model.variant import Bounds, VariantKey
from wva.publish.ledger import Ledger
from wva.publish.metrics import SeriesText
from wva.serve.pages import _heading

KEYS = [VariantKey("ns", name) for name in ("a", "b", 'c"\\\n')]


class SeriesScene:
    """A ledger, the conditions of the variants, the registry, and the text."""

    def __init__(self, *, instance="", aliases=False):
        """Lead, and know no variant."""
        self.ledger = Ledger()
        self.conditions = {}
        self.leading = True
        self.asked = []
        made = collector(
            self.ledger,
            current=self.current,
            bounds=lambda _: Bounds(maximum=9),
            statuses=lambda: self.conditions,
            conditions=lambda key: self.conditions.get(key, ()),
            leading=lambda: self.leading,
            instance=instance,
            aliases=aliases,
        )
        self.registry = CollectorRegistry()
        self.registry.register(made)
        self.series = SeriesText(made, leading=lambda: self.leading)
        self.ledger.subscribe(lambda key, _old, _new: self.series.mark([key]))

    def current(self, key):
        """Record which variant is read."""
        self.asked.append(key)
        return 2

    async def text(self, encode=generate_latest):
        """Return the page."""
        return b"".join(await self.series.page(lambda head: _heading(encode, head)))


CHANGES = st.one_of(
    st.tuples(st.just("record"), st.sampled_from(KEYS), decisions()),
    st.tuples(st.just("drop"), st.sampled_from(KEYS), st.none()),
    st.tuples(st.just("status"), st.sampled_from(KEYS), st.sampled_from(["TargetConflict", "Fine"])),
    st.tuples(st.just("leading"), st.booleans(), st.none()),
)


@pytest.mark.parametrize("encode", [generate_latest, openmetrics.generate_latest])
@pytest.mark.parametrize("fields", [{}, {"instance": "x", "aliases": True}], ids=["plain", "instance"])
@given(turns=st.lists(st.lists(CHANGES, max_size=3), max_size=5))
async def test_the_text_is_what_the_library_writes(encode, fields, turns):
    """After any changes both formats equal the output of the library."""
    scene = SeriesScene(**fields)
    for changes in turns:
        for verb, key, value in changes:
            if verb == "record":
                scene.ledger.record([replace(value, key=key)])
            elif verb == "drop":
                scene.ledger.drop(key)
            elif verb == "status":
                scene.conditions[key] = (Condition("Ready", "False", value, "words"),)
                scene.series.mark([key])
            else:
                scene.leading = key
        assert await scene.text(encode) == encode(scene.registry).removesuffix(b"# EOF\n")


async def test_only_what_changed_is_read_again():
    """A page without a change reads no variant; after a change it reads the changed one."""
    scene = SeriesScene()
    scene.ledger.record(replace(decision(), key=key) for key in KEYS)
    first = await scene.text()
    assert sorted(scene.asked) == sorted(KEYS)
    scene.asked.clear()
    assert await scene.text() == first
    assert scene.asked == []
    scene.ledger.record([replace(decision(desired=7), key=KEYS[1])])
    assert b'wva_desired_replicas{accelerator_type="H100",namespace="ns",variant_name="b"} 7.0' in await scene.text()
    assert scene.asked == [KEYS[1]]


async def test_what_could_not_be_read_is_read_again():
    """The next page reads the variant again, although it has not changed."""
    scene = SeriesScene()
    working, scene.current = scene.current, None
    scene.ledger.record([decision()])
    reader = scene.series._collector
    reader._current = {}.__getitem__
    assert b'wva_current_replicas{accelerator_type="H100",namespace="ns",variant_name="va"} 2.0' in await scene.text()
    reader._current = working
    await scene.text()
    assert scene.asked == [decision().key]
    await scene.text()
    assert scene.asked == [decision().key]

"""The series about variants as text, kept up with what changes.

A fleet of 1,800 variants has 18,000 series, and few of them change between two scrapes. So the text of each variant is
kept, a change marks the variants that it concerns, and a page makes the text of those anew and joins it with the rest.
The text is the same in every format that scrapers ask for; only the heads of the families differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from wva.model.variant import VariantKey
from wva.publish.leader_collector import Head, LeaderCollector
from wva.slices import Slices

Heading: TypeAlias = Callable[[Head], bytes]
"""Returns the lines above the series of a family, in the format of the page."""

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class SeriesText:
    """The text of the series of all variants."""

    def __init__(self, collectors: Sequence[LeaderCollector], *, leading: Callable[[], bool]) -> None:
        """Show what ``collectors`` tell; nothing is known of any variant yet."""
        self._collectors = collectors
        self._leading = leading
        self._texts: dict[VariantKey, tuple[bytes, ...]] = {}
        self._order: list[VariantKey] | None = []
        self._marked: set[VariantKey] = set()
        self.heads: tuple[Head, ...] = tuple(head for collector in collectors for head in collector.heads)

    def mark(self, keys: Iterable[VariantKey]) -> None:
        """Note that something about these variants may have changed."""
        self._marked.update(keys)

    async def page(self, heading: Heading) -> list[bytes]:
        """Return the heads and series of all families, in pieces; other tasks run while texts are made anew."""
        heads = [heading(head) for head in self.heads]
        if not self._leading():
            return heads
        slices = Slices()
        for collector in self._collectors:
            self._marked |= collector.failed
            collector.failed.clear()
        while self._marked:
            self._renew(self._marked.pop())
            await slices.rest()
        if self._order is None:
            self._order = sorted(self._texts)
        texts = [self._texts[key] for key in self._order]
        return [piece for place, head in enumerate(heads) for piece in (head, *[text[place] for text in texts])]

    def _renew(self, key: VariantKey) -> None:
        rows = [rows for collector in self._collectors for rows in collector.samples_of(key)]
        if any(rows):
            if key not in self._texts:
                self._order = None
            self._texts[key] = tuple("".join(map(_line, samples)).encode() for samples in rows)
        elif self._texts.pop(key, None) is not None:
            self._order = None


def _line(sample: Sample) -> str:
    """Return a sample as scrapers read it, in all formats alike."""
    labels = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(sample.labels.items()))
    value = floatToGoString(sample.value)  # type: ignore[no-untyped-call]  # the library has no types here
    return f"{sample.name}{{{labels}}} {value}\n"

"""Reads a page of an endpoint picker as the controller does, in pieces."""

from __future__ import annotations

from wva.scale_from_zero.gateway import PIECE_BYTES
from wva.scale_from_zero.page import PickerPageReader


def read_page(page, *, piece_bytes=PIECE_BYTES):
    """Return what a page (text or bytes) says."""
    data = page.encode() if isinstance(page, str) else page
    reader = PickerPageReader()
    for start in range(0, len(data), piece_bytes):
        reader.feed(data[start : start + piece_bytes])
    return reader.end()

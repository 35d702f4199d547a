"""The recorded pages: what ``/metrics`` of a real vLLM 0.32.0 said (``data/pages/README.md``)."""

from __future__ import annotations

import functools
import gzip
from pathlib import Path

_FOLDER = Path(__file__).parent / "data" / "pages"
_ENDING = ".txt.gz"


def vllm_pages() -> list[str]:
    """Return the names of all recorded pages of vLLM, sorted."""
    return sorted(path.name.removesuffix(_ENDING) for path in (_FOLDER / "vllm-0.32.0").glob(f"*{_ENDING}"))


@functools.cache
def vllm_page(name: str) -> str:
    """Return a page of vLLM as it was scraped; raises FileNotFoundError if there is none with this name."""
    return gzip.decompress((_FOLDER / "vllm-0.32.0" / f"{name}{_ENDING}").read_bytes()).decode()

"""How long pods of a model take until they are Ready, from published start-ups of vLLM.

``docs/physics.md`` has the sources and what is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from wva.sim.stage.scenario import StartUp

START_UPS: Final[Mapping[str, StartUp]] = MappingProxyType(
    {
        "Llama-3.1-8B": StartUp(median_seconds=80.0, sigma=0.25, pull_probability=0.1, pull_seconds=300.0),
        "Qwen3-32B": StartUp(median_seconds=130.0, sigma=0.25, pull_probability=0.1, pull_seconds=300.0),
        "Llama-3.1-70B": StartUp(median_seconds=215.0, sigma=0.25, pull_probability=0.1, pull_seconds=300.0),
    }
)
"""By model of ``accelerators``: weights on a local disk or in the page cache, no cache of compiled code."""

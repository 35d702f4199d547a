"""How the KV cache of a prompt gets from a prefill pod to a decode pod, and which prompts take that way.

``docs/physics.md`` has the sources of the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wva.sim.fleet.accelerators import MODELS

BYTES_PER_SECOND: Final = 4.3e9
"""Of one transfer, as vLLM's NixlConnector logged them: 167 MB in 38.7 ms."""
DELAY_SECONDS: Final = 0.11
"""What the handover of a request takes beside the transfer and the first step: 197 - 29 - 58 ms."""
LEAST_PROMPT_TOKENS: Final = 512
"""``nonCachedTokens`` in the example of llm-d-router; its default is to compute all prompts at decode pods."""
_KV_BYTES: Final = 2
"""Of a number in the KV cache."""


@dataclass(frozen=True, slots=True)
class KvTransfer:
    """What goes from prefill to decode, and how fast.

    Attributes:
        token_seconds: what each token of a prompt takes.
        delay_seconds: what each request takes beside that.
        least_prompt_tokens: shorter prompts are computed by the decode pod.

    """

    token_seconds: float
    delay_seconds: float = DELAY_SECONDS
    least_prompt_tokens: int = LEAST_PROMPT_TOKENS

    @classmethod
    def of(cls, model: str, *, bytes_per_second: float = BYTES_PER_SECOND) -> KvTransfer:
        """Return the transfer of the KV cache of a model in 16 bit, by name of ``accelerators``."""
        decoder = MODELS[model]
        return cls(2 * decoder.layers * decoder.kv_heads * decoder.head_size * _KV_BYTES / bytes_per_second)

    def seconds(self, prompt_tokens: float) -> float:
        """Return how long the transfer of a prompt of so many tokens takes."""
        return self.delay_seconds + self.token_seconds * prompt_tokens

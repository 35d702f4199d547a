"""What a Deployment says of the vLLM engine in its pods: the arguments that bound how many tokens it carries.

Defaults are vLLM's own. ``read_parameters`` reads a pod template; how an argument is written
(``--max-num-seqs=64``, ``--max_num_seqs 64``, inside ``sh -c``) is a matter of this module alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

V1_BATCHED_TOKENS: Final = 8192
V0_BATCHED_TOKENS: Final = 2048

_SHELLS: Final = frozenset({"sh", "bash", "/bin/sh", "/bin/bash"})
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,9}")
_REAL: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_QUOTES: Final = "'\""


@dataclass(frozen=True, slots=True)
class VllmParameters:
    """Arguments of an engine, named as vLLM names them; 0 means not given where vLLM has no fixed default."""

    gpu_memory_utilization: float = 0.9
    block_size: int = 16
    kv_cache_dtype: str = "auto"
    tensor_parallel_size: int = 1
    num_gpu_blocks_override: int = 0
    max_num_batched_tokens: int = 0
    max_num_seqs: int = 256
    max_model_len: int = 0
    enforce_eager: bool = False
    v1_engine: bool = True
    chunked_prefill: bool = True

    @property
    def batched_tokens(self) -> int:
        """Tokens that one step computes at most (B)."""
        if self.max_num_batched_tokens > 0:
            return self.max_num_batched_tokens
        if self.chunked_prefill:
            return V1_BATCHED_TOKENS if self.v1_engine else V0_BATCHED_TOKENS
        return max(self.max_model_len, V0_BATCHED_TOKENS)

    @property
    def override_tokens(self) -> int:
        """Tokens of the KV cache if its blocks are set by hand, else 0."""
        return max(0, self.num_gpu_blocks_override * self.block_size)

    def compatible(self, other: VllmParameters) -> bool:
        """Whether an engine with these arguments carries as much as one with the others on the same accelerator."""
        return self._bounds == other._bounds

    @property
    def _bounds(self) -> tuple[float | int | str, ...]:
        return (
            self.gpu_memory_utilization,
            self.block_size,
            self.kv_cache_dtype,
            self.tensor_parallel_size,
            self.num_gpu_blocks_override,
            self.batched_tokens,
            self.max_num_seqs,
        )


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """How a container starts: command and args as one row of words, and the value of ``VLLM_USE_V1`` if it is set."""

    words: tuple[str, ...]
    use_v1: str | None = None


def read_parameters(containers: Iterable[EngineCommand]) -> VllmParameters:
    """Return the parameters of the containers of a pod template; a later container overrides an earlier one.

    A value that is no number of the expected kind keeps the one before it, as vLLM itself would not start with it.
    """
    found = VllmParameters()
    for container in containers:
        if container.use_v1 == "0":
            found = replace(found, v1_engine=False, chunked_prefill=False)
        for name, value in _arguments(_engine_words(container.words)):
            found = _with_argument(found, name, value)
    return replace(found, chunked_prefill=True) if found.v1_engine else found


_READERS: Final[Mapping[str, Callable[[VllmParameters, str], VllmParameters]]] = {
    "gpu_memory_utilization": lambda found, text: replace(
        found, gpu_memory_utilization=_real(text, found.gpu_memory_utilization)
    ),
    "block_size": lambda found, text: replace(found, block_size=_whole(text, found.block_size)),
    "kv_cache_dtype": lambda found, text: replace(found, kv_cache_dtype=text),
    "tensor_parallel_size": lambda found, text: replace(
        found, tensor_parallel_size=_whole(text, found.tensor_parallel_size)
    ),
    "num_gpu_blocks_override": lambda found, text: replace(
        found, num_gpu_blocks_override=_whole(text, found.num_gpu_blocks_override)
    ),
    "max_num_batched_tokens": lambda found, text: replace(
        found, max_num_batched_tokens=_whole(text, found.max_num_batched_tokens)
    ),
    "max_num_seqs": lambda found, text: replace(found, max_num_seqs=_whole(text, found.max_num_seqs)),
    "max_model_len": lambda found, text: replace(found, max_model_len=_whole(text, found.max_model_len)),
    "enforce_eager": lambda found, _: replace(found, enforce_eager=True),
    "enable_chunked_prefill": lambda found, _: replace(found, chunked_prefill=True),
}


def _with_argument(found: VllmParameters, name: str, text: str) -> VllmParameters:
    reader = _READERS.get(name)
    return found if reader is None else reader(found, text)


def _arguments(words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the names and values of the long options; a flag takes the next word unless that is an option too."""
    for position, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word.partition("=")
        following = words[position + 1] if position + 1 < len(words) else ""
        if not equals and not following.startswith("--"):
            value = following
        yield name.lstrip("-").replace("-", "_"), value


def _engine_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of the command inside ``sh -c``, else the words themselves."""
    for shell, option, script in zip(words, words[1:], words[2:], strict=False):
        if shell in _SHELLS and option == "-c":
            return tuple(_split(script))
    return words


def _split(script: str) -> Iterator[str]:
    """Split at spaces outside quotes, and drop the quotes. There are no escapes."""
    word, quote = "", ""
    for character in script:
        if quote:
            quote, word = ("", word) if character == quote else (quote, word + character)
        elif character in _QUOTES:
            quote = character
        elif character != " ":
            word += character
        elif word:
            yield word
            word = ""
    if word:
        yield word


def _whole(text: str, kept: int) -> int:
    return int(text) if _WHOLE.fullmatch(text) else kept


def _real(text: str, kept: float) -> float:
    number = float(text) if _REAL.fullmatch(text) else math.nan
    return number if math.isfinite(number) else kept

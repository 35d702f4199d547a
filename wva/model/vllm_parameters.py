"""What a pod template says of the vLLM engine: the arguments that bound how many tokens it carries.

Defaults are vLLM's own. Only this module knows how an argument is written (``--max-num-seqs=64``,
``--max_num_seqs 64``, inside ``sh -c``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final

from wva.numbers import NumberError, Real, Whole

V1_BATCHED_TOKENS: Final = 8192
V0_BATCHED_TOKENS: Final = 2048

_SHELLS: Final = frozenset({"sh", "bash", "/bin/sh", "/bin/bash"})
COUNT_ARGUMENT: Final = Whole(-999_999_999, 999_999_999)
"""vLLM itself refuses most of those below zero; the capacity that follows from one is 0."""
_NUMBERS: Final[Mapping[str, Whole | Real]] = {
    "gpu_memory_utilization": Real(0, 1, above=True),
    "block_size": COUNT_ARGUMENT,
    "tensor_parallel_size": COUNT_ARGUMENT,
    "num_gpu_blocks_override": COUNT_ARGUMENT,
    "max_num_batched_tokens": COUNT_ARGUMENT,
    "max_num_seqs": COUNT_ARGUMENT,
    "max_model_len": COUNT_ARGUMENT,
}
_TEXTS: Final = frozenset({"kv_cache_dtype"})
_FLAGS: Final[Mapping[str, str]] = {"enforce_eager": "enforce_eager", "enable_chunked_prefill": "chunked_prefill"}
"""Per argument without a value: the field that it sets."""
_TRANSFER: Final = "kv_transfer_config"
KV_ROLES: Final = frozenset({"kv_producer", "kv_consumer", "kv_both"})
_SHOWN_PROBLEMS: Final = 3
"""Problems that are reported of one template."""

_WORD: Final = re.compile(r"""(?:[^ '"]++|'[^']*+'?|"[^"]*+"?)++""")
_QUOTED: Final = re.compile(r"""'([^']*+)'?|"([^"]*+)"?""")
"""Possessive, so that no text makes the matching go back. A quote that is not closed reaches to the end."""


@dataclass(frozen=True, slots=True)
class VllmParameters:
    """Arguments of an engine, named as vLLM names them; 0 means not given where vLLM has no fixed default.

    ``kv_role`` is that of ``--kv-transfer-config``, empty without a known one.
    """

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
    kv_role: str = ""

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
        return bool(_BOUNDS(self) == _BOUNDS(other))


_BOUNDS: Final = attrgetter(
    "gpu_memory_utilization",
    "block_size",
    "kv_cache_dtype",
    "tensor_parallel_size",
    "num_gpu_blocks_override",
    "batched_tokens",
    "max_num_seqs",
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
    return _read(containers)[0]


def argument_problems(containers: Iterable[EngineCommand]) -> list[str]:
    """Return a line for people about each of the first numbers that do not count as they are written.

    A value with ``$`` is left out: the shell or the kubelet replaces it when the container starts. So is ``auto``,
    which leaves the number to vLLM.
    """
    return _read(containers)[1]


def _read(containers: Iterable[EngineCommand]) -> tuple[VllmParameters, list[str]]:
    values: dict[str, Any] = asdict(VllmParameters())
    problems: list[str] = []
    for container in containers:
        if container.use_v1 == "0":
            values |= {"v1_engine": False, "chunked_prefill": False}
        words = list(container.words)
        for shell, option, script in zip(words, words[1:], words[2:], strict=False):
            if shell in _SHELLS and option == "-c":
                words = list(_split(script))
                break
        # A flag takes the next word for its value unless that is an option too.
        for word, following in pairwise([*words, ""]):
            if not word.startswith("--"):
                continue
            option, equals, text = word.partition("=")
            if not equals and not following.startswith("--"):
                text = following
            name = option.lstrip("-").replace("-", "_")
            if name in _FLAGS:
                values[_FLAGS[name]] = True
            elif name in _TEXTS:
                values[name] = text
            elif name == _TRANSFER:
                values["kv_role"] = _kv_role(text)
            elif name == f"{_TRANSFER}.kv_role":
                values["kv_role"] = text if text in KV_ROLES else ""
            elif name in _NUMBERS:
                try:
                    key = f"--{name.replace('_', '-')}"
                    values[name] = _NUMBERS[name].read(text, key=key, in_force=values[name])
                except NumberError as error:
                    if "$" not in text and text != "auto" and len(problems) < _SHOWN_PROBLEMS:
                        problems.append(str(error))
    if values["v1_engine"]:
        values["chunked_prefill"] = True
    return VllmParameters(**values), problems


def _kv_role(text: str) -> str:
    """Return the role in the JSON of ``--kv-transfer-config``; empty if it has none, or is no JSON."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    role = config.get("kv_role") if isinstance(config, dict) else None
    return role if isinstance(role, str) and role in KV_ROLES else ""


def _split(script: str) -> Iterator[str]:
    """Split at spaces outside quotes, and drop the quotes. There are no escapes. Takes linear time."""

    def unquoted(match: re.Match[str]) -> str:
        return match[1] or match[2] or ""

    return filter(None, (_QUOTED.sub(unquoted, match[0]) for match in _WORD.finditer(script)))

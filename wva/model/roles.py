"""The roles of variants in disaggregated serving: which stages of a request their pods compute.

The values are those of llm-d: https://github.com/llm-d/llm-d-router. A variant without a role computes all stages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

ROLE_LABEL: Final = "llm-d.ai/role"
"""The label of a pod whose value is its role, in llm-d."""

PREFILL: Final = "prefill"
DECODE: Final = "decode"
ENCODE: Final = "encode"

STAGES: Final[Mapping[str, frozenset[str]]] = {
    PREFILL: frozenset({PREFILL}),
    DECODE: frozenset({DECODE}),
    ENCODE: frozenset({ENCODE}),
    "prefill-decode": frozenset({PREFILL, DECODE}),
    "encode-prefill": frozenset({ENCODE, PREFILL}),
    "encode-decode": frozenset({ENCODE, DECODE}),
    "encode-prefill-decode": frozenset({ENCODE, PREFILL, DECODE}),
}
"""By role, the stages of a request that its pods compute."""
_FORMER: Final = {"both": "prefill-decode"}
_OF_CONNECTOR: Final = {"kv_producer": PREFILL, "kv_consumer": DECODE}
"""By ``kv_role`` of vLLM's ``--kv-transfer-config``, the role of the pod. ``kv_both`` says nothing: llm-d gives it to
pods of every role."""
_NAME: Final = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PREFIX: Final = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_KEY: Final = re.compile(rf"(?=[^/]{{1,253}}/|[^/]*$)({_PREFIX}/)?{_NAME}")
"""The key of a label, as the API server takes it."""
_VALUE: Final = re.compile(_NAME)
MAX_TEXT_CHARACTERS: Final = 4096
"""Room for a dozen keys. Each pod template is compared with them."""


@dataclass(frozen=True, slots=True)
class RoleLabels:
    """Which labels of pods say their role, and with which values.

    The first of ``keys`` that a pod has as a label counts. ``values`` are roles by further values of these labels, and
    go before those of llm-d.
    """

    keys: tuple[str, ...] = (ROLE_LABEL,)
    values: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, keys: str = ROLE_LABEL, values: str = "") -> Self:
        """Return what the settings say: keys of labels, and pairs ``VALUE=ROLE``, both with commas between them.

        Raises ValueError if a label cannot have such a key or value, if a role is unknown, or if a value stands twice.
        """
        if len(keys) > MAX_TEXT_CHARACTERS or len(values) > MAX_TEXT_CHARACTERS:
            raise ValueError("too long")
        named = tuple(words(keys))
        roles: dict[str, str] = {}
        for pair in words(values) if values else ():
            value, _, role = pair.partition("=")
            if _VALUE.fullmatch(value) is None or value in roles:
                raise ValueError(pair)
            roles[value] = _FORMER.get(role, role)
        if wrong := [key for key in named if _KEY.fullmatch(key) is None]:
            raise ValueError(wrong[0])
        if unknown := roles.values() - STAGES.keys():
            raise ValueError(unknown.pop())
        return cls(named, roles)

    def role_of(self, labels: Mapping[str, str], kv_role: str = "") -> str:
        """Return the role of pods with these labels; empty if they have none.

        Pods without any of the labels have the role that the ``kv_role`` of their engine means. An unknown value of the
        label is no role.
        """
        value = next((labels[key] for key in self.keys if key in labels), None)
        if value is None:
            return _OF_CONNECTOR.get(kv_role, "")
        value = self.values.get(value) or _FORMER.get(value, value)
        return value if value in STAGES else ""


def words(text: str) -> list[str]:
    """Return the parts of a text between commas, without spaces around them."""
    return [part.strip() for part in text.split(",")]


def place_of(role: str) -> tuple[int, str]:
    """Return the place of a role among those of a model, in the order in which requests pass them."""
    stages = STAGES.get(role, frozenset())
    return max([(ENCODE, PREFILL, DECODE).index(stage) for stage in stages], default=0), role


def needs_others(role: str, others: Iterable[str]) -> bool:
    """Tell whether requests at pods of a role need pods of the other roles of the model, too."""
    return role in STAGES and any(not STAGES[other] <= STAGES[role] for other in others)


def computes(role: str, stage: str) -> bool:
    """Tell whether pods of a role compute a stage of requests; those of no known role compute all."""
    return role not in STAGES or stage in STAGES[role]

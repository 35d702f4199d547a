"""The roles of variants in disaggregated serving: which stages of a request their pods compute.

The values are those of llm-d: https://github.com/llm-d/llm-d-router. A variant without a role computes all stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ROLE_LABEL: Final = "llm-d.ai/role"
"""The label of a pod whose value is its role."""

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


def role_of(labels: Mapping[str, str], kv_role: str = "") -> str:
    """Return the role of pods with these labels; empty if they have none.

    Without the label, ``kv_role`` of the engine says it. An unknown value of the label is no role.
    """
    told = labels.get(ROLE_LABEL)
    if told is None:
        return _OF_CONNECTOR.get(kv_role, "")
    told = _FORMER.get(told, told)
    return told if told in STAGES else ""


def computes(role: str, stage: str) -> bool:
    """Tell whether pods of a role compute a stage of requests; those of no known role compute all."""
    return role not in STAGES or stage in STAGES[role]

"""The percentage analyzer of v0.5, for the compatibility mode.

The formulas are in docs/design/compatibility-v05.md#percentage-analyzer. The order of operations matters, because the
results must be the same to the last bit: the means of the model are made from those of its variants, and the simulated
removal of a replica forms the quotient N/(N-1) first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wva.decide.assessment_v05 import ModelLoad, ReplicaLoad, VariantLoad
from wva.model.policy import SaturationPolicy

_MIN_REPLICAS_TO_SHRINK: Final = 2


def analyze(replicas: Sequence[ReplicaLoad], policy: SaturationPolicy) -> ModelLoad:
    """Analyse one model from its reporting pods, in the order given; without any nothing is asked for."""
    if not replicas:
        return ModelLoad()
    names = sorted({replica.variant for replica in replicas})
    variants = tuple(_variant([replica for replica in replicas if replica.variant == name], policy) for name in names)
    count = sum(variant.non_saturated for variant in variants)
    kv = queue = 0.0
    if count:
        kv = sum(variant.mean_spare_kv * variant.non_saturated for variant in variants) / count
        queue = sum(variant.mean_spare_queue * variant.non_saturated for variant in variants) / count
    reason = _scale_up_reason(kv, queue, policy)
    return ModelLoad(
        total_replicas=len(replicas),
        non_saturated=count,
        mean_spare_kv=kv,
        mean_spare_queue=queue,
        should_scale_up=bool(reason),
        scale_up_reason=reason,
        scale_down_safe=_scale_down_safe(count, kv, queue, policy),
        variants=variants,
    )


def _variant(replicas: Sequence[ReplicaLoad], policy: SaturationPolicy) -> VariantLoad:
    spare_kv = spare_queue = max_kv = max_queue = 0.0
    saturated = []
    for replica in replicas:
        max_kv, max_queue = max(max_kv, replica.kv_usage), max(max_queue, replica.queue_length)
        if replica.kv_usage >= policy.kv_cache_threshold or replica.queue_length >= policy.queue_length_threshold:
            saturated.append(replica.pod)
        else:
            spare_kv += policy.kv_cache_threshold - replica.kv_usage
            spare_queue += policy.queue_length_threshold - replica.queue_length
    count = len(replicas) - len(saturated)
    return VariantLoad(
        variant=replicas[0].variant,
        accelerator=replicas[0].accelerator,
        cost=replicas[0].cost,
        replica_count=len(replicas),
        non_saturated=count,
        max_kv_usage=max_kv,
        max_queue_length=max_queue,
        mean_spare_kv=spare_kv / count if count else 0.0,
        mean_spare_queue=spare_queue / count if count else 0.0,
        saturated_pods=tuple(saturated),
    )


def _scale_up_reason(kv: float, queue: float, policy: SaturationPolicy) -> str:
    """Return why the model should grow, in the words of v0.5; empty when it should not."""
    kv_low, queue_low = kv < policy.kv_spare_trigger, queue < policy.queue_spare_trigger
    kv_words = f"({kv:.3f} < {policy.kv_spare_trigger:.3f})"
    queue_words = f"({queue:.1f} < {policy.queue_spare_trigger:.1f})"
    if kv_low and queue_low:
        return f"both KV spare {kv_words} and queue spare {queue_words}"
    if kv_low:
        return f"KV spare Saturation low {kv_words}"
    return f"queue spare Saturation low {queue_words}" if queue_low else ""


def _scale_down_safe(count: int, kv: float, queue: float, policy: SaturationPolicy) -> bool:
    if count < _MIN_REPLICAS_TO_SHRINK:
        return False
    factor = count / (count - 1)
    load_kv = (policy.kv_cache_threshold - kv) * factor
    load_queue = (policy.queue_length_threshold - queue) * factor
    return (
        policy.kv_cache_threshold - load_kv >= policy.kv_spare_trigger
        and policy.queue_length_threshold - load_queue >= policy.queue_spare_trigger
    )

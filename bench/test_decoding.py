"""Decoding a list of pods: our partial structs against the models of kubernetes-asyncio."""

from __future__ import annotations

import json
from types import SimpleNamespace

from kubernetes_asyncio.client import ApiClient, Configuration

from bench.paired import ratio
from tests.builders import decoded_list
from wva.api.kinds import PODS

COUNT = 500


def _pod(number: int) -> dict[str, object]:
    managed = {"manager": "kubelet", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {}}}
    container = {
        "name": "vllm",
        "image": "vllm",
        "args": ["--model", "acme/chat"] * 8,
        "env": [{"name": f"NAME_{index}", "value": "value"} for index in range(20)],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"chat-{number}",
            "namespace": "llm",
            "uid": str(number),
            "resourceVersion": str(number),
            "labels": {f"label-{index}": "value" for index in range(10)},
            "managedFields": [managed] * 4,
        },
        "spec": {"containers": [container], "volumes": [{"name": "cache", "emptyDir": {}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


async def test_structs_decode_at_least_twenty_times_faster_than_the_models() -> None:
    """This speed is the reason for the dependency on msgspec."""
    measured = await _measure()
    print(f"\ndecoding {COUNT} pods: {measured:.0f} times faster than the models")
    assert measured > 20


async def _measure() -> float:
    body = {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [_pod(number) for number in range(COUNT)]}
    text = json.dumps(body)
    data = text.encode()
    client = ApiClient(Configuration())
    try:

        def models() -> object:
            return client.deserialize(SimpleNamespace(data=text), "V1PodList")

        return ratio(models, lambda: decoded_list(PODS, data))
    finally:
        await client.close()

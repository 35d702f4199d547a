"""The target of a variant as the API server has it now, with the managers of its fields."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec

from tests.kube.clocks import ManualClock


class FakeLiveTarget:
    """A client of an API server that has one Deployment: ``replicas``, and the ``owners`` of its fields.

    The time of an answer is the clock of the API server, None if its answers have none.
    """

    def __init__(self):
        """Have two replicas that nobody owns."""
        self.owners = []
        self.exists, self.hangs = True, False
        self.replicas = 2
        self.answered_at = ManualClock().now()

    async def request_dated_json(self, method, path):
        """Return the list with the target, and the time of the API server."""
        if self.hangs:
            await asyncio.Event().wait()
        assert (method, path) == ("GET", "/apis/apps/v1/namespaces/ns/deployments?fieldSelector=metadata.name%3Dx")
        meta = {"name": "x", "resourceVersion": "7", "managedFields": self.owners}
        items = [{"metadata": meta, "spec": {"replicas": self.replicas}}] if self.exists else []
        return msgspec.json.encode({"items": items}), self.answered_at


def owner(manager, *, operation="Update", subresource="scale", seconds_ago=3600.0, field="f:replicas", stamped=True):
    """Return an entry of ``managedFields``, as of a custom resource if it is not ``stamped`` with its time."""
    at = datetime.fromtimestamp(ManualClock().now() - seconds_ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = {"f:spec": {field: {}}, "f:metadata": {".": {}}}
    named = {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields}
    named |= {"time": at} if stamped else {}
    return named | ({"subresource": subresource} if subresource else {})

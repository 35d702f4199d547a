"""KEDA as the client of the external scaler."""

from __future__ import annotations

from grpclib.client import UnaryStreamMethod, UnaryUnaryMethod

from tests.serve.doubles import PATIENCE_SECONDS
from wva.serve.keda_push import (
    METRIC,
    GetMetricSpecResponse,
    GetMetricsRequest,
    GetMetricsResponse,
    IsActiveResponse,
    ScaledObjectRef,
)

SERVICE = "/externalscaler.ExternalScaler/"


class Client:
    """Calls the methods as KEDA does."""

    def __init__(self, channel, server):
        """Keep the channel."""
        self.channel, self.server = channel, server

    async def active(self, reference):
        """Call IsActive."""
        method = UnaryUnaryMethod(self.channel, f"{SERVICE}IsActive", ScaledObjectRef, IsActiveResponse)
        return (await method(reference, timeout=PATIENCE_SECONDS)).result

    async def number(self, reference):
        """Call GetMetrics."""
        method = UnaryUnaryMethod(self.channel, f"{SERVICE}GetMetrics", GetMetricsRequest, GetMetricsResponse)
        request = GetMetricsRequest(scaledObjectRef=reference, metricName=METRIC)
        (value,) = (await method(request, timeout=PATIENCE_SECONDS)).metricValues
        assert value.metricName == METRIC
        assert value.metricValue == value.metricValueFloat
        return value.metricValueFloat

    async def specs(self, reference):
        """Call GetMetricSpec."""
        method = UnaryUnaryMethod(self.channel, f"{SERVICE}GetMetricSpec", ScaledObjectRef, GetMetricSpecResponse)
        return (await method(reference, timeout=PATIENCE_SECONDS)).metricSpecs

    def stream(self):
        """Open StreamIsActive."""
        method = UnaryStreamMethod(self.channel, f"{SERVICE}StreamIsActive", ScaledObjectRef, IsActiveResponse)
        return method.open()


def ref(name="va", namespace="ns", **metadata):
    """Return a reference to a ScaledObject."""
    return ScaledObjectRef(name=name, namespace=namespace, scalerMetadata=metadata)

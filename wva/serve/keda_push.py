"""KEDA's external scaler: KEDA asks this server for the numbers, and is told at once when a variant wakes or rests.

A ScaledObject with an ``external-push`` trigger makes KEDA call the methods of ``externalscaler.proto``:

- ``StreamIsActive`` stays open. A message goes out as soon as a decision makes zero replicas positive, or back.
- ``GetMetrics`` gives the number. KEDA asks whenever the HPA does, so no scrape and no poll lies in between.

KEDA gets only the numbers of variants in the ScaledObject's own namespace, and only of those that ask for it with the
annotation ``wva.llmd.ai/actuation: keda-push``. Without a number the answer is UNAVAILABLE, never 0. Only the leader
listens: a client that knows every replica's address, as a headless Service gives them, finds the one that answers.

No client can block the process: connections, frames, streams, bytes and times are limited (``wva.serve.http2``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NoReturn, Self

from grpclib.config import Configuration
from grpclib.const import Cardinality, Handler, Status
from grpclib.encoding.proto import ProtoCodec
from grpclib.exceptions import GRPCError
from grpclib.server import Server as GrpcServer
from grpclib.server import Stream
from h2.exceptions import ProtocolError

from wva import log
from wva.actuation import ACTUATION_ANNOTATION, VARIANT_METADATA, Actuation, actuation_of
from wva.api.meta import Key
from wva.api.variantautoscaling import VariantAutoscaling
from wva.clock import Clock
from wva.instruments import Instruments
from wva.kube.cache import Store
from wva.model.decision import Decision
from wva.model.trouble import UNTROUBLED, Trouble, TroubleReason
from wva.model.variant import VariantKey
from wva.publish.ledger import Ledger
from wva.serve.addresses import Address
from wva.serve.followers import Followers, NoPlaceError
from wva.serve.http2 import Http2Connection, Http2Limits, ReadingTurns, caller
from wva.serve.listener import Listener, TlsSource
from wva.serve.messages import FLAG, REAL, TEXT, WHOLE, message_types

METRIC: Final = "wva_desired_replicas"

WAITING: Final = 128
"""Requests of one connection that wait for their client. KEDA sends the message with the request, and reads answers."""
MESSAGE_BYTES: Final = 64 * 1024
NAME_CHARACTERS: Final = 253
"""That of a Kubernetes name."""
_PATIENCE_SECONDS: Final = 90.0
"""KEDA waits up to a minute before it connects again."""
_LOOK_SECONDS: Final = 15.0
_REQUEST_SECONDS: Final = 10.0
_SEND_SECONDS: Final = 30.0
_PREFIX_BYTES: Final = 5
_SERVER: Final = "keda-push"

_log = log.get("keda_push")


_message = message_types(
    "externalscaler",
    {
        "ScaledObjectRef.ScalerMetadataEntry": {1: ("key", TEXT), 2: ("value", TEXT)},
        "ScaledObjectRef": {
            1: ("name", TEXT),
            2: ("namespace", TEXT),
            3: ("scalerMetadata", "[ScaledObjectRef.ScalerMetadataEntry"),
        },
        "IsActiveResponse": {1: ("result", FLAG)},
        "MetricSpec": {1: ("metricName", TEXT), 2: ("targetSize", WHOLE), 3: ("targetSizeFloat", REAL)},
        "GetMetricSpecResponse": {1: ("metricSpecs", "[MetricSpec")},
        "GetMetricsRequest": {1: ("scaledObjectRef", "ScaledObjectRef"), 2: ("metricName", TEXT)},
        "MetricValue": {1: ("metricName", TEXT), 2: ("metricValue", WHOLE), 3: ("metricValueFloat", REAL)},
        "GetMetricsResponse": {1: ("metricValues", "[MetricValue")},
    },
)
"""Returns the message types of KEDA's ``externalscaler.proto`` by name."""
ScaledObjectRef: Final = _message("ScaledObjectRef")
IsActiveResponse: Final = _message("IsActiveResponse")
GetMetricSpecResponse: Final = _message("GetMetricSpecResponse")
GetMetricsRequest: Final = _message("GetMetricsRequest")
GetMetricsResponse: Final = _message("GetMetricsResponse")


class PushScaler:
    """The answers: what KEDA may know of each variant, and which variants KEDA asks for."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        variants: Store[VariantAutoscaling],
        leading: Callable[[], bool],
        revisit: Callable[[Key], None],
        clock: Clock,
    ) -> None:
        """Answer from ``ledger``. ``revisit`` lets the status of a VA be computed again."""
        self._ledger = ledger
        self._variants = variants
        self._leading = leading
        self._revisit = revisit
        self._clock = clock
        self._began = clock.monotonic()
        self._asked_at: dict[Key, float] = {}
        self._followers = Followers(lambda key: variants.get(Key(key.namespace, key.name)) is not None)
        self._troubled: dict[Key, bool] = {}
        ledger.subscribe(self._on_decision)

    def __mapping__(self) -> dict[str, Handler]:
        """Return the methods by their paths."""
        unary, stream = Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM
        return {
            f"/externalscaler.ExternalScaler/{name}": Handler(_guarded(method), cardinality, request_type, answer_type)
            for name, method, cardinality, request_type, answer_type in (
                ("IsActive", self._is_active, unary, ScaledObjectRef, IsActiveResponse),
                ("StreamIsActive", self._stream_is_active, stream, ScaledObjectRef, IsActiveResponse),
                ("GetMetricSpec", self._metric_spec, unary, ScaledObjectRef, GetMetricSpecResponse),
                ("GetMetrics", self._metrics, unary, GetMetricsRequest, GetMetricsResponse),
                ("StreamMetricSpec", _unimplemented, stream, ScaledObjectRef, GetMetricSpecResponse),
            )
        }

    def trouble(self, key: Key) -> Trouble:
        """Return whether KEDA has not asked for a variant that it should apply; falsy if it has, lately."""
        va = self._variants.get(key)
        if va is None or actuation_of(va) is not Actuation.KEDA_PUSH or self._ledger.shadow(VariantKey(*key)):
            return UNTROUBLED
        last = self._asked_at.get(key, self._began)
        if self._followers.follows(VariantKey(*key)) or self._clock.monotonic() - last < _PATIENCE_SECONDS:
            return UNTROUBLED
        message = (
            f"KEDA has not asked for this variant for {_PATIENCE_SECONDS:g} s: expected a ScaledObject of this "
            f"namespace with an external-push trigger, called like the variant or with metadata {VARIANT_METADATA}; "
            "in force: nothing applies the number"
        )
        return Trouble(TroubleReason.ACTUATION_NO_CLIENT.value, message)

    async def run(self) -> NoReturn:
        """Let the statuses follow what KEDA asks for."""
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Let each status whose trouble began or ended be computed again; forget variants that are gone."""
        keys = {va.metadata.key for va in self._variants.list()}
        self._asked_at = {key: at for key, at in self._asked_at.items() if key in keys}
        previous, self._troubled = self._troubled, {key: bool(self.trouble(key)) for key in keys}
        for key, troubled in self._troubled.items():
            if troubled != previous.get(key, False):
                self._revisit(key)

    def number(self, key: VariantKey) -> int:
        """Return the number of a variant. Raises GRPCError if there is none that KEDA may act on."""
        if not self._leading():
            raise GRPCError(Status.UNAVAILABLE, "this controller does not lead")
        va = self._variants.get(Key(key.namespace, key.name))
        if va is None:
            raise GRPCError(Status.NOT_FOUND, f"there is no VariantAutoscaling {key.namespace}/{key.name}")
        if actuation_of(va) is not Actuation.KEDA_PUSH:
            raise GRPCError(
                Status.FAILED_PRECONDITION,
                f"VariantAutoscaling {key.namespace}/{key.name}: expected annotation "
                f"{ACTUATION_ANNOTATION}={Actuation.KEDA_PUSH}",
            )
        if self._ledger.shadow(key):
            raise GRPCError(Status.FAILED_PRECONDITION, f"{key.namespace}/{key.name} is in shadow mode")
        decision = self._ledger.get(key)
        if decision is None:
            raise GRPCError(Status.UNAVAILABLE, f"nothing is decided yet on {key.namespace}/{key.name}")
        return decision.desired

    def _on_decision(self, key: VariantKey, _old: Decision | None, _new: Decision | None) -> None:
        self._followers.wake(key)

    def _key(self, ref: Any) -> VariantKey:
        """Return the variant that a ScaledObject names, in its own namespace. Raises GRPCError."""
        name = ref.scalerMetadata.get(VARIANT_METADATA, "") or ref.name
        for field, text in (("namespace", ref.namespace), (f"name or metadata {VARIANT_METADATA}", name)):
            if not 0 < len(text) <= NAME_CHARACTERS:
                expected = f"expected 1 to {NAME_CHARACTERS} characters"
                raise GRPCError(Status.INVALID_ARGUMENT, f"{field} has {len(text)} characters: {expected}")
        key = Key(ref.namespace, name)
        if self._variants.get(key) is not None:
            self._asked_at[key] = self._clock.monotonic()
            caller.get().useful = True
        return VariantKey(*key)

    async def _is_active(self, stream: Stream[Any, Any]) -> None:
        key = self._key(await _receive(stream, ScaledObjectRef))
        await _send(stream, IsActiveResponse(result=self.number(key) > 0))

    async def _metric_spec(self, stream: Stream[Any, Any]) -> None:
        self._key(await _receive(stream, ScaledObjectRef))
        specs = [{"metricName": METRIC, "targetSize": 1, "targetSizeFloat": 1.0}]
        await _send(stream, GetMetricSpecResponse(metricSpecs=specs))

    async def _metrics(self, stream: Stream[Any, Any]) -> None:
        number = self.number(self._key((await _receive(stream, GetMetricsRequest)).scaledObjectRef))
        values = [{"metricName": METRIC, "metricValue": number, "metricValueFloat": float(number)}]
        await _send(stream, GetMetricsResponse(metricValues=values))

    async def _stream_is_active(self, stream: Stream[Any, Any]) -> None:
        """Tell whether the variant should run: now, and whenever that changes. Without a number nothing is sent."""
        key = self._key(await _receive(stream, ScaledObjectRef))
        va_key = Key(key.namespace, key.name)
        sent: bool | None = None
        try:
            with self._followers.follow(key) as follower:
                while not follower.displaced:
                    follower.changed.clear()
                    self._followers.look(follower)
                    try:
                        active = self.number(key) > 0
                    except GRPCError:
                        pass  # an error would make KEDA wait for up to a minute before it connects again
                    else:
                        if active != sent:
                            await _send(stream, IsActiveResponse(result=active))
                            sent = active
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_SECONDS):  # mode and annotation are no decisions
                            await follower.changed.wait()
        except NoPlaceError:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, "as many streams are open as there may be") from None
        finally:
            if self._variants.get(va_key) is not None:
                self._asked_at[va_key] = self._clock.monotonic()
        raise GRPCError(Status.RESOURCE_EXHAUSTED, "a newer stream has the place of this one")


_throttle = log.Throttle()


def _guarded(method: Callable[[Stream[Any, Any]], Awaitable[None]]) -> Callable[[Stream[Any, Any]], Awaitable[None]]:
    """Return the method so that errors of WVA are logged, and the client gets no details of them."""

    async def guarded(stream: Stream[Any, Any]) -> None:
        try:
            await method(stream)
        except GRPCError:
            raise
        except TimeoutError:
            raise GRPCError(Status.DEADLINE_EXCEEDED, "the request or its answer took too long") from None
        except (AssertionError, ConnectionError) as error:  # grpclib: the stream ended within a message
            raise GRPCError(Status.INVALID_ARGUMENT, "the message is incomplete") from error
        except ProtocolError as error:  # h2: the connection ended before the answer
            raise GRPCError(Status.UNAVAILABLE, "the connection has ended") from error
        except Exception as error:
            if _throttle.permits("request", type(error).__name__, time.monotonic()):
                _log.exception("request_failed", server=_SERVER)
            raise GRPCError(Status.INTERNAL, "internal error") from error

    return guarded


async def _receive(stream: Stream[Any, Any], kind: type[Any]) -> Any:
    """Return the one message of a request. Raises GRPCError, or TimeoutError.

    grpclib's own method reads as many bytes as a client announces.
    """
    source = stream._stream  # noqa: SLF001 - see above
    async with _waiting(_REQUEST_SECONDS):
        prefix = await source.recv_data(_PREFIX_BYTES)
        if len(prefix) < _PREFIX_BYTES or prefix[0]:
            raise GRPCError(Status.INVALID_ARGUMENT, "expected one message without compression")
        size = int.from_bytes(prefix[1:], "big")
        if size > MESSAGE_BYTES:
            expected = f"expected at most {MESSAGE_BYTES}"
            raise GRPCError(Status.RESOURCE_EXHAUSTED, f"the message has {size} bytes: {expected}")
        data = await source.recv_data(size)
    try:
        return kind.FromString(data)
    except Exception as error:  # protobuf's DecodeError is no ValueError everywhere
        raise GRPCError(Status.INVALID_ARGUMENT, "the message is not of this method") from error


async def _unimplemented(stream: Stream[Any, Any]) -> None:
    """Answer that a method that KEDA does not need is not there.

    grpclib's own answer to unknown methods has no content type. KEDA takes it for a failure and asks every minute.
    """
    await _receive(stream, ScaledObjectRef)
    raise GRPCError(Status.UNIMPLEMENTED, "GetMetricSpec gives the specification, which never changes")


async def _send(stream: Stream[Any, Any], message: Any) -> None:
    """Send a message. Raises TimeoutError for a client that does not read."""
    async with _waiting(_SEND_SECONDS):
        await stream.send_message(message)


@asynccontextmanager
async def _waiting(seconds: float) -> AsyncIterator[None]:
    """Wait for a client during the body. Raises TimeoutError, or GRPCError if too many of its requests wait."""
    connection = caller.get()
    if connection.waiting >= WAITING:
        raise GRPCError(Status.RESOURCE_EXHAUSTED, f"{WAITING} requests of this connection wait for their client")
    connection.waiting += 1
    try:
        async with asyncio.timeout(seconds):
            yield
    finally:
        connection.waiting -= 1


class PushServer(Listener[Http2Connection]):
    """Listens for KEDA."""

    def __init__(
        self,
        scaler: PushScaler,
        address: Address,
        *,
        tls: TlsSource | None,
        instruments: Instruments,
        limits: Http2Limits | None = None,
    ) -> None:
        """Prepare; nothing listens before ``__aenter__``. Without ``tls`` everybody on the way can read."""
        limits = limits or Http2Limits()
        super().__init__(self._http2, address, name=_SERVER, instruments=instruments, tls=tls, limits=limits)
        self.scaler = scaler
        self._allowed = limits
        self._turns = ReadingTurns()
        # Each line has a traceback, and a client may cause any number of them; ``_guarded`` logs errors of ours.
        logging.getLogger("grpclib").setLevel(logging.CRITICAL + 1)

    async def __aenter__(self) -> Self:
        """Listen. Raises AddressError when the address is taken or not ours."""
        config = Configuration(
            _keepalive_time=30.0,
            _keepalive_timeout=20.0,
            _keepalive_permit_without_calls=True,
            _http2_max_pings_without_data=0,
            _http2_min_sent_ping_interval_without_data=30.0,
            http2_connection_window_size=4 * MESSAGE_BYTES,
            http2_stream_window_size=MESSAGE_BYTES,
        )
        self._grpc = GrpcServer([self.scaler], codec=ProtoCodec(), config=config)
        await super().__aenter__()
        self.beside(self.scaler.run())
        return self

    def _http2(self) -> Http2Connection:
        protocol = self._grpc._protocol_factory()  # noqa: SLF001 - grpclib accepts connections without any limit
        return Http2Connection(protocol, self._allowed, self._turns, closed=self.closed)

"""KEDA's external scaler: KEDA asks this server for the numbers, and is told at once when a variant wakes or rests.

A ScaledObject with an ``external-push`` trigger makes KEDA call the methods of ``externalscaler.proto``:

- ``StreamIsActive`` stays open. A message goes out as soon as a decision makes zero replicas positive, or back.
- ``GetMetrics`` gives the number. KEDA asks whenever the HPA does, so no scrape and no poll lies in between.

Only a variant of the ScaledObject's own namespace is told, and only if it asks for it with the annotation
``wva.llmd.ai/actuation: keda-push``.
No number is UNAVAILABLE, never 0. Only the leader listens: a client that knows every replica's address, as a headless
Service gives them, finds the one that answers.

No client can block the process: connections, streams, bytes and times are limited.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, NoReturn, Self

from grpclib.config import Configuration
from grpclib.const import Cardinality, Handler, Status
from grpclib.encoding.proto import ProtoCodec
from grpclib.exceptions import GRPCError
from grpclib.protocol import H2Protocol
from grpclib.server import Server as GrpcServer
from grpclib.server import Stream
from h2.settings import SettingCodes

from wva import log
from wva.actuation import ACTUATION_ANNOTATION, VARIANT_METADATA, Actuation, actuation_of
from wva.api.meta import Key
from wva.api.variantautoscaling import VariantAutoscaling
from wva.clock import Clock
from wva.kube.cache import Store
from wva.model.decision import Decision
from wva.model.trouble import UNTROUBLED, Trouble, TroubleReason
from wva.model.variant import VariantKey
from wva.publish.ledger import Ledger
from wva.serve.addresses import Address
from wva.serve.listener import TlsSource
from wva.serve.messages import FLAG, REAL, TEXT, WHOLE, message_types

METRIC: Final = "wva_desired_replicas"

CONNECTIONS: Final = 64
FOLLOWERS: Final = 4096
"""Open ``StreamIsActive``, one for each ScaledObject."""
REQUESTS: Final = FOLLOWERS + 1024
"""Requests of one connection at a time. KEDA has one connection for all ScaledObjects with the same settings."""
MESSAGE_BYTES: Final = 64 * 1024
NAME_CHARACTERS: Final = 253
"""That of a Kubernetes name."""
_PATIENCE_SECONDS: Final = 90.0
"""KEDA waits up to a minute before it connects again."""
_LOOK_SECONDS: Final = 15.0
_HANDSHAKE_SECONDS: Final = 10.0
_REQUEST_SECONDS: Final = 10.0
_SEND_SECONDS: Final = 30.0
_ACCEPT_PAUSE_SECONDS: Final = 1.0
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
        shadow: Callable[[VariantKey], bool] = lambda _key: False,
        revisit: Callable[[Key], None],
        clock: Clock,
    ) -> None:
        """Answer from ``ledger``. ``revisit`` has the status of a VA looked at again."""
        self._ledger = ledger
        self._variants = variants
        self._leading = leading
        self._shadow = shadow
        self._revisit = revisit
        self._clock = clock
        self._began = clock.monotonic()
        self._asked: dict[Key, float] = {}
        self._open: Counter[Key] = Counter()
        self._followers: dict[VariantKey, set[asyncio.Event]] = {}
        self._told: dict[Key, bool] = {}
        ledger.subscribe(self._on_decision)

    def __mapping__(self) -> dict[str, Handler]:
        """Return the methods by their paths."""
        unary, stream = Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM
        return {
            f"/externalscaler.ExternalScaler/{name}": Handler(_guarded(method), cardinality, asked, answered)
            for name, method, cardinality, asked, answered in (
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
        if va is None or actuation_of(va) is not Actuation.KEDA_PUSH or self._shadow(VariantKey(*key)):
            return UNTROUBLED
        last = self._asked.get(key, self._began)
        if self._open[key] > 0 or self._clock.monotonic() - last < _PATIENCE_SECONDS:
            return UNTROUBLED
        words = (
            f"KEDA has not asked for this variant for {_PATIENCE_SECONDS:g} s: expected a ScaledObject of this "
            f"namespace with an external-push trigger, called like the variant or with metadata {VARIANT_METADATA}; "
            "in force: nothing applies the number"
        )
        return Trouble(TroubleReason.ACTUATION_NO_CLIENT.value, words)

    async def run(self) -> NoReturn:
        """Have the statuses follow what KEDA asks for."""
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Have each status looked at again whose trouble began or ended; forget variants that are gone."""
        keys = {va.metadata.key for va in self._variants.list()}
        self._asked = {key: at for key, at in self._asked.items() if key in keys}
        told, self._told = self._told, {key: bool(self.trouble(key)) for key in keys}
        for key, troubled in self._told.items():
            if troubled != told.get(key, False):
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
        if self._shadow(key):
            raise GRPCError(Status.FAILED_PRECONDITION, f"{key.namespace}/{key.name} is in shadow mode")
        decision = self._ledger.get(key)
        if decision is None:
            raise GRPCError(Status.UNAVAILABLE, f"nothing is decided yet on {key.namespace}/{key.name}")
        return decision.desired

    def _on_decision(self, key: VariantKey, _old: Decision | None, _new: Decision | None) -> None:
        for follower in self._followers.get(key, ()):
            follower.set()

    def _key(self, ref: Any) -> VariantKey:
        """Return the variant that a ScaledObject names, in its own namespace. Raises GRPCError."""
        name = ref.scalerMetadata.get(VARIANT_METADATA, "") or ref.name
        for field, text in (("namespace", ref.namespace), (f"name or metadata {VARIANT_METADATA}", name)):
            if not 0 < len(text) <= NAME_CHARACTERS:
                expected = f"expected 1 to {NAME_CHARACTERS} characters"
                raise GRPCError(Status.INVALID_ARGUMENT, f"{field} has {len(text)} characters: {expected}")
        key = Key(ref.namespace, name)
        if self._variants.get(key) is not None:
            self._asked[key] = self._clock.monotonic()
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
        if self._open.total() >= FOLLOWERS:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, f"{FOLLOWERS} streams are open")
        changed, place = asyncio.Event(), Key(key.namespace, key.name)
        self._followers.setdefault(key, set()).add(changed)
        self._open[place] += 1
        told: bool | None = None
        try:
            while True:
                changed.clear()
                try:
                    active = self.number(key) > 0
                except GRPCError:
                    pass  # an error would make KEDA wait for up to a minute before it connects again
                else:
                    if active != told:
                        await _send(stream, IsActiveResponse(result=active))
                        told = active
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):  # mode and annotation are no decisions
                        await changed.wait()
        finally:
            self._followers[key].discard(changed)
            if not self._followers[key]:
                del self._followers[key]
            self._open[place] -= 1
            if not self._open[place]:
                del self._open[place]
            if self._variants.get(place) is not None:
                self._asked[place] = self._clock.monotonic()


_throttle = log.Throttle()


def _guarded(method: Callable[[Stream[Any, Any]], Awaitable[None]]) -> Callable[[Stream[Any, Any]], Awaitable[None]]:
    """Return the method so that an error of ours is in the log and the client hears of no details."""

    async def guarded(stream: Stream[Any, Any]) -> None:
        try:
            await method(stream)
        except GRPCError:
            raise
        except TimeoutError:
            raise GRPCError(Status.DEADLINE_EXCEEDED, "the request or its answer took too long") from None
        except (AssertionError, ConnectionError) as error:  # grpclib: the stream ended within a message
            raise GRPCError(Status.INVALID_ARGUMENT, "the message is incomplete") from error
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
    async with asyncio.timeout(_REQUEST_SECONDS):
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
    """Say that a method that KEDA may do without is not there.

    grpclib's own answer to unknown methods has no content type. KEDA takes it for a failure and asks every minute.
    """
    await _receive(stream, ScaledObjectRef)
    raise GRPCError(Status.UNIMPLEMENTED, "GetMetricSpec gives the specification, which never changes")


async def _send(stream: Stream[Any, Any], message: Any) -> None:
    """Send a message. Raises TimeoutError for a client that does not read."""
    async with asyncio.timeout(_SEND_SECONDS):
        await stream.send_message(message)


class _Connection(H2Protocol):
    """One connection: it ends unless a request comes soon."""

    transport: asyncio.Transport | None = None

    def __init__(self, *arguments: Any) -> None:
        """Wait for the transport."""
        super().__init__(*arguments)
        self.ended = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say how many requests may be open, and wait for the first."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - tells mypy
        self.transport = transport
        super().connection_made(transport)
        self.connection._connection.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: REQUESTS})  # noqa: SLF001 - grpclib has no setting
        self.connection.flush()
        self._timer = asyncio.get_running_loop().call_later(_REQUEST_SECONDS, self._first_request_due)

    def _first_request_due(self) -> None:
        if self.connection.messages_sent == 0 and not self.processor.streams:
            self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End the requests."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)
        self.ended.set()

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()


class PushServer:
    """Listens for KEDA."""

    def __init__(self, scaler: PushScaler, address: Address, *, tls: TlsSource | None) -> None:
        """Prepare; nothing listens before ``__aenter__``. Without ``tls`` everybody on the way can read."""
        self.scaler = scaler
        self._address = address
        self._tls = tls
        self._connections: dict[_Connection, asyncio.Task[None]] = {}
        self.port = address.port
        # Each line has a traceback, and a client may cause any number of them; ``_guarded`` logs errors of ours.
        logging.getLogger("grpclib").setLevel(logging.CRITICAL + 1)

    async def __aenter__(self) -> Self:
        """Listen. Raises AddressError when the address is taken or not ours."""
        sockets = await self._address.bind(_SERVER, backlog=CONNECTIONS)
        config = Configuration(
            _keepalive_time=30.0,
            _keepalive_timeout=20.0,
            _keepalive_permit_without_calls=True,
            _http2_max_pings_without_data=0,
            _http2_min_sent_ping_interval_without_data=30.0,
            http2_connection_window_size=2**20,
            http2_stream_window_size=MESSAGE_BYTES,
        )
        self._grpc = GrpcServer([self.scaler], codec=ProtoCodec(), config=config)
        async with AsyncExitStack() as stack:
            for listening in sockets:
                stack.callback(listening.close)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            self._tasks = [group.create_task(self._accept(listening, group)) for listening in sockets]
            self._tasks.append(group.create_task(self.scaler.run()))
            self._stack = stack.pop_all()
        self.port = int(sockets[0].getsockname()[1])
        _log.info("server_started", server=_SERVER, port=self.port, tls=self._tls is not None)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop accepting, and end all connections."""
        for task in [*self._tasks, *self._connections.values()]:
            task.cancel()
        await self._stack.aclose()

    @property
    def open_connections(self) -> int:
        """How many connections there are, with those in their handshake."""
        return len(self._connections)

    async def _accept(self, listening: socket.socket, group: asyncio.TaskGroup) -> None:
        while True:
            try:
                accepted, _ = await asyncio.get_running_loop().sock_accept(listening)
            except ConnectionAbortedError:  # the client has gone before it was accepted
                continue
            except OSError as error:  # no file descriptors are left; clients wait in the kernel
                _log.warning("accept_failed", server=_SERVER, error=error.strerror)
                await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            if len(self._connections) >= CONNECTIONS:
                accepted.close()
                continue
            made = self._grpc._protocol_factory()  # noqa: SLF001 - grpclib accepts connections without any limit
            connection = _Connection(made.handler, made.config, made.h2_config)
            self._connections[connection] = group.create_task(self._serve(connection, accepted))

    async def _serve(self, connection: _Connection, accepted: socket.socket) -> None:
        """Hold one connection from its handshake to its end."""
        try:
            tls = self._tls() if self._tls else None
            seconds = {"ssl_handshake_timeout": _HANDSHAKE_SECONDS, "ssl_shutdown_timeout": 1.0} if tls else {}
            accepted.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted, ssl=tls, **seconds)
            await connection.ended.wait()
        except OSError:
            pass  # anything that a client sends instead of TLS
        except Exception as error:  # noqa: BLE001 - it is in the log
            if _throttle.permits("connection", type(error).__name__, time.monotonic()):
                _log.exception("connection_failed", server=_SERVER)  # only this connection ends
        finally:
            connection.abort()
            accepted.close()
            self._connections.pop(connection, None)

"""The certificate of ``/metrics``: from files that may change, or self-signed and renewed while the process runs.

Each certificate gets its own TLS context, made from bytes that were read once. The server asks for the context in force
at each handshake. So a change is one assignment: a handshake sees the old pair or the new one, never half of each, and
open connections go on. The files are polled, because that works on every volume type: the kubelet swaps a symlinked
directory, and a watch on the file itself never fires there.
"""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

from cryptography import x509

from wva import log
from wva.clock import Clock
from wva.instruments import Instruments
from wva.serve.pem import load_pair, self_signed

RELOAD_SECONDS: Final = 10.0
RENEWAL_CHECK_SECONDS: Final = 3600.0
RENEW_BEFORE: Final = timedelta(days=30)
_WARN_BEFORE: Final = timedelta(days=7)
_WARN_SHARE: Final = 0.2
_MAX_BYTES: Final = 1024 * 1024
_READS: Final = 3
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2: forward secrecy and authenticated encryption. TLS 1.3 has nothing else."""

Now = Callable[[], float]


class CertificateError(Exception):
    """The configured pair cannot be used; the message names the files and says why."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where the pair lies."""

    certificate: Path
    key: Path


class ServingCertificate(Protocol):
    """Where a server gets its TLS context from."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next handshake."""
        ...

    async def run(self, clock: Clock) -> None:
        """Keep it good until cancelled."""
        ...


def server_context() -> ssl.SSLContext:
    """Return a TLS 1.2+ server context without a certificate, speaking HTTP/1.1 only."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    return context


@dataclass(frozen=True, slots=True)
class _Loaded:
    """One usable pair: its context and when it is valid."""

    context: ssl.SSLContext
    not_before: datetime
    not_after: datetime

    @staticmethod
    def of(certificate: bytes, key: bytes) -> _Loaded:
        """Load a pair (PEM). Raises ValueError or OSError (ssl.SSLError is one) when it cannot be used."""
        leaf = x509.load_pem_x509_certificates(certificate)[0]
        context = server_context()
        load_pair(context, certificate, key)
        return _Loaded(context, leaf.not_valid_before_utc, leaf.not_valid_after_utc)


class _Expiry:
    """Says that the certificate in force runs out: as a metric all the time, in the log once for each state."""

    def __init__(self, instruments: Instruments) -> None:
        self._gauge = instruments.certificate_expiry
        self._logger = log.get("certs")
        self._told = ""

    def watch(self, pair: _Loaded, now: datetime) -> None:
        """Look at the certificate in force."""
        self._gauge.set(pair.not_after.timestamp())
        margin = min(_WARN_BEFORE, (pair.not_after - pair.not_before) * _WARN_SHARE)
        state = "expired" if now >= pair.not_after else "expiring" if now >= pair.not_after - margin else ""
        if state == self._told:
            return
        self._told = state
        expires = pair.not_after.isoformat()
        if state == "expired":
            self._logger.error("certificate_expired", expires=expires, in_force="this certificate, for want of another")
        elif state:
            self._logger.warning("certificate_expiring", expires=expires, expected="a newer pair in the files")


class SelfSignedCertificate:
    """A self-signed certificate, new at each start and again before it runs out."""

    def __init__(self, dns_names: list[str], *, instruments: Instruments, now: Now) -> None:
        """Make the first one. ``now`` tells wall-clock seconds since the epoch."""
        self._names = dns_names
        self._now = now
        self._expiry = _Expiry(instruments)
        self._pair = self._make()

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next handshake."""
        return self._pair.context

    async def run(self, clock: Clock) -> None:
        """Renew until cancelled."""
        while True:
            await clock.sleep(RENEWAL_CHECK_SECONDS)
            self.poll()

    def poll(self) -> None:
        """Make a new one if the one in force runs out soon."""
        if _time(self._now) >= self._pair.not_after - RENEW_BEFORE:
            self._pair = self._make()
            log.get("certs").info("certificate_renewed", expires=self._pair.not_after.isoformat())

    def _make(self) -> _Loaded:
        now = _time(self._now)
        pair = _Loaded.of(*self_signed(self._names, now=now))
        self._expiry.watch(pair, now)
        return pair


class ReloadingCertificate:
    """A certificate that follows its files."""

    def __init__(self, files: CertificateFiles, *, instruments: Instruments, now: Now) -> None:
        """Load the pair. Raises CertificateError when it cannot be used.

        ``now`` tells wall-clock seconds since the epoch.
        """
        self._files = files
        self._now = now
        self._reloads = instruments.certificate_reloads
        self._logger = log.get("certs")
        self._expiry = _Expiry(instruments)
        self._seen = _read_pair(files)
        self._rejected: object = None
        self._pair = self._load(self._seen)
        self._expiry.watch(self._pair, _time(now))

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next handshake."""
        return self._pair.context

    async def run(self, clock: Clock) -> None:
        """Follow the files until cancelled. A pair that does not load is reported and the last good one kept."""
        while True:
            await clock.sleep(RELOAD_SECONDS)
            self.poll()

    def poll(self) -> None:
        """Load the pair if its bytes changed."""
        now = _time(self._now)
        try:
            current = _read_pair(self._files)
            if current != self._seen:
                self._take(current, now)
            self._rejected = None
        except CertificateError as error:
            self._reject(error)
        self._expiry.watch(self._pair, now)

    def _take(self, current: tuple[bytes, bytes], now: datetime) -> None:
        pair = self._load(current)
        outside = now < pair.not_before or now >= pair.not_after
        if outside and self._pair.not_before <= now < self._pair.not_after:
            valid = f"{pair.not_before.isoformat()} to {pair.not_after.isoformat()}"
            raise CertificateError(
                f"{self._files.certificate} is valid from {valid} only, and now is {now.isoformat()}"
            )
        self._pair, self._seen = pair, current
        self._reloads.labels(result="success").inc()
        self._logger.info("certificate_reloaded", path=str(self._files.certificate), expires=pair.not_after.isoformat())

    def _reject(self, error: CertificateError) -> None:
        """Report a pair once for each reason, not at every look."""
        reason = str(error).partition(", and now is ")[0]
        if reason == self._rejected:
            return
        self._rejected = reason
        self._reloads.labels(result="rejected").inc()
        self._logger.error("certificate_rejected", reason=str(error), in_force="the last good certificate")

    def _load(self, pair: tuple[bytes, bytes]) -> _Loaded:
        try:
            return _Loaded.of(*pair)
        except (ValueError, OSError) as error:  # ssl.SSLError is an OSError
            names = f"{self._files.certificate} and {self._files.key}"
            raise CertificateError(f"{names} are not a certificate and its private key: {error}") from error


def _time(now: Now) -> datetime:
    return datetime.fromtimestamp(now(), UTC)


def _read_pair(files: CertificateFiles) -> tuple[bytes, bytes]:
    """Return both files as they were at one time: read again while they are being changed. Raises CertificateError."""
    pair = _read(files.certificate), _read(files.key)
    for _ in range(_READS):
        again = _read(files.certificate), _read(files.key)
        if again == pair:
            break
        pair = again
    return pair


def _read(path: Path) -> bytes:
    """Return the content of a regular file; never wait for anything else that may bear the name."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise CertificateError(f"cannot read {path}: it is not a file")
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise CertificateError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise CertificateError(f"cannot read {path}: larger than {_MAX_BYTES} bytes")
    return data

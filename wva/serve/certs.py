"""The certificate of ``/metrics``: from files that may change, or self-signed and renewed while the process runs.

Each certificate gets its own TLS context, made from bytes that were read once. The server asks for the context in force
at each handshake. So a change is one assignment: a handshake sees the old pair or the new one, never half of each, and
open connections go on. The authorities of client certificates follow their file in the same way. The files are polled,
because that works on every type of volume. The kubelet swaps a symlinked directory, so a watch on the file itself would
never fire.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from wva import log
from wva.clock import Clock
from wva.files import read_bounded
from wva.instruments import Instruments

RENEW_BEFORE: Final = timedelta(days=30)
_VALIDITY: Final = timedelta(days=365)
_CLOCK_SKEW: Final = timedelta(minutes=10)
_WARN_BEFORE: Final = timedelta(days=7)
_WARN_SHARE: Final = 0.2
_MAX_BYTES: Final = 1024 * 1024
_READS: Final = 3
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2: only forward secrecy and authenticated encryption, as TLS 1.3 has by itself."""

Now = Callable[[], float]


class CertificateError(Exception):
    """The configured pair cannot be used. The message names the files and says why."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where certificate and key are."""

    certificate: Path
    key: Path


def server_context(protocol: str = "http/1.1") -> ssl.SSLContext:
    """Return a server context without a certificate, for TLS 1.2 or newer and one protocol by its ALPN name."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols([protocol])
    return context


@dataclass(frozen=True, slots=True)
class _Pair:
    """A usable pair of certificate and key (PEM)."""

    context: ssl.SSLContext
    not_before: datetime
    not_after: datetime
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)

    @staticmethod
    def of(certificate: bytes, key: bytes) -> _Pair:
        """Load a pair (PEM). Raises ValueError or OSError when it cannot be used; ssl.SSLError is an OSError."""
        leaf = x509.load_pem_x509_certificates(certificate)[0]
        context = server_context()
        load_pair(context, certificate, key)
        return _Pair(context, leaf.not_valid_before_utc, leaf.not_valid_after_utc, certificate, key)

    def http2(self, authorities: ClientAuthorities | None) -> ssl.SSLContext:
        """Return a context for HTTP/2 that asks clients for a certificate of ``authorities``, if there are any."""
        context = server_context("h2")
        load_pair(context, self.certificate, self.key)
        if authorities is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            if authorities.text:
                context.load_verify_locations(cadata=authorities.text)
        return context


class ClientAuthorities:
    """The authorities of client certificates. They follow their file; while that is unusable, no new client gets in."""

    def __init__(self, path: Path, *, setting: str) -> None:
        """Load the file. Raises CertificateError, which names ``setting``, when it cannot be used."""
        self._path = path
        self._setting = setting
        self._logger = log.get("certs")
        self._last_error = ""
        self.text = self._load()

    def poll(self) -> bool:
        """Read the file again. Return whether other authorities are in force now."""
        previous = self.text
        try:
            self.text = self._load()
            self._last_error = ""
        except CertificateError as error:
            self.text = ""
            if str(error) != self._last_error:  # once, not at every poll
                self._last_error = str(error)
                self._logger.error(  # noqa: TRY400 - expected
                    "client_authorities_rejected", reason=self._last_error, in_force="no new client gets in"
                )
        changed = self.text != previous
        if changed and self.text:
            self._logger.info("client_authorities_reloaded", path=str(self._path))
        return changed

    def _load(self) -> str:
        try:
            text = _read(self._path).decode("ascii")
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=text)
        except (CertificateError, OSError, ValueError) as error:
            origin = f"{self._setting}={self._path}"
            raise CertificateError(f"{origin}: cannot be read as certificates (PEM): {error}") from error
        return text


class ServingCertificate(ABC):
    """Where a server gets its TLS context from."""

    period_seconds: ClassVar[float] = 10.0

    def __init__(
        self, pair: _Pair, *, instruments: Instruments, now: Now, authorities: ClientAuthorities | None = None
    ) -> None:
        """Begin with a pair. ``now`` tells seconds since the epoch.

        Without ``authorities`` the servers of HTTP/2 ask for no client certificate.
        """
        self._authorities = authorities
        self._put_in_force(pair)
        self._now = now
        self._expires = instruments.certificate_expiry
        self._logger = log.get("certs")
        self._logged_state = ""
        self._watch_expiry(_time(now))

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next handshake."""
        return self._pair.context

    @property
    def http2(self) -> ssl.SSLContext:
        """The context for the next handshake of a server of HTTP/2."""
        return self._http2

    async def run(self, clock: Clock) -> None:
        """Poll until cancelled."""
        while True:
            await clock.sleep(self.period_seconds)
            self.poll()

    def poll(self) -> None:
        """Put another pair and other authorities in force, if it is time."""
        self._poll_pair()
        if self._authorities is not None and self._authorities.poll():
            self._http2 = self._pair.http2(self._authorities)

    @abstractmethod
    def _poll_pair(self) -> None:
        """Put another pair in force, if it is time."""

    def _put_in_force(self, pair: _Pair) -> None:
        self._pair = pair
        self._http2 = pair.http2(self._authorities)

    def _watch_expiry(self, now: datetime) -> None:
        """Tell when the certificate in force expires: always as a metric, and once for each state in the log."""
        pair = self._pair
        self._expires.set(pair.not_after.timestamp())
        margin = min(_WARN_BEFORE, (pair.not_after - pair.not_before) * _WARN_SHARE)
        state = "expired" if now >= pair.not_after else "expiring" if now >= pair.not_after - margin else ""
        if state == self._logged_state:
            return
        self._logged_state = state
        expires = pair.not_after.isoformat()
        if state == "expired":
            self._logger.error(
                "certificate_expired", expires=expires, in_force="this certificate, because there is no other"
            )
        elif state:
            self._logger.warning("certificate_expiring", expires=expires, expected="a newer pair in the files")


class SelfSignedCertificate(ServingCertificate):
    """A self-signed certificate, made at each start and again before it expires."""

    def __init__(
        self, dns_names: list[str], *, instruments: Instruments, now: Now, authorities: ClientAuthorities | None = None
    ) -> None:
        """Make the first one. ``now`` tells seconds since the epoch."""
        self._names = dns_names
        pair = _Pair.of(*self_signed(dns_names, now=_time(now)))
        super().__init__(pair, instruments=instruments, now=now, authorities=authorities)

    def _poll_pair(self) -> None:
        """Make a new one if the one in force expires soon."""
        now = _time(self._now)
        if now >= self._pair.not_after - RENEW_BEFORE:
            self._put_in_force(_Pair.of(*self_signed(self._names, now=now)))
            self._watch_expiry(now)
            self._logger.info("certificate_renewed", expires=self._pair.not_after.isoformat())


class ReloadingCertificate(ServingCertificate):
    """A certificate that follows its files. It reports a pair that does not load, and keeps the last good one."""

    def __init__(
        self,
        files: CertificateFiles,
        *,
        instruments: Instruments,
        now: Now,
        authorities: ClientAuthorities | None = None,
    ) -> None:
        """Load the pair. ``now`` tells seconds since the epoch. Raises CertificateError when it cannot be used."""
        self._files = files
        self._reloads = instruments.certificate_reloads
        self._rejected: object = None
        self._loaded_bytes = _read_pair(files)
        super().__init__(self._load(self._loaded_bytes), instruments=instruments, now=now, authorities=authorities)

    def _poll_pair(self) -> None:
        """Load the pair if its bytes changed."""
        now = _time(self._now)
        try:
            current = _read_pair(self._files)
            if current != self._loaded_bytes:
                pair = self._load(current)
                outside = now < pair.not_before or now >= pair.not_after
                if outside and self._pair.not_before <= now < self._pair.not_after:
                    valid = f"{pair.not_before.isoformat()} to {pair.not_after.isoformat()}"
                    raise CertificateError(
                        f"{self._files.certificate} is valid from {valid} only, and now is {now.isoformat()}"
                    )
                self._put_in_force(pair)
                self._loaded_bytes = current
                self._reloads.labels(result="success").inc()
                path, expires = str(self._files.certificate), pair.not_after.isoformat()
                self._logger.info("certificate_reloaded", path=path, expires=expires)
            self._rejected = None
        except CertificateError as error:
            # Each reason is reported once, not at every poll.
            reason = str(error).partition(", and now is ")[0]
            if reason != self._rejected:
                self._rejected = reason
                self._reloads.labels(result="rejected").inc()
                self._logger.error("certificate_rejected", reason=str(error), in_force="the last good certificate")  # noqa: TRY400 - expected
        self._watch_expiry(now)

    def _load(self, pair: tuple[bytes, bytes]) -> _Pair:
        try:
            return _Pair.of(*pair)
        except (ValueError, OSError) as error:
            names = f"{self._files.certificate} and {self._files.key}"
            raise CertificateError(f"{names} are not a certificate and its private key: {error}") from error


def _time(now: Now) -> datetime:
    return datetime.fromtimestamp(now(), UTC)


def _read_pair(files: CertificateFiles) -> tuple[bytes, bytes]:
    """Return both files as they were at one time: read again while they change. Raises CertificateError."""
    pair = _read(files.certificate), _read(files.key)
    for _ in range(_READS):
        previous, pair = pair, (_read(files.certificate), _read(files.key))
        if pair == previous:
            break
    return pair


def _read(path: Path) -> bytes:
    try:
        return read_bounded(path, _MAX_BYTES)
    except OSError as error:
        raise CertificateError(f"cannot read {path}: {error.strerror}") from error


def self_signed(dns_names: list[str], *, now: datetime) -> tuple[bytes, bytes]:
    """Return certificate and key (PEM) for localhost, 127.0.0.1 and ``dns_names``, valid for a year."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "wva-metrics")])
    alternatives: list[x509.GeneralName] = [x509.DNSName(entry) for entry in ["localhost", *dns_names]]
    alternatives.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALIDITY)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem_key = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), pem_key


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load certificate and key (PEM) into ``context``. Raises OSError, such as ssl.SSLError when they are no pair.

    An encrypted key does not load. Without the empty password OpenSSL would ask for one on the terminal.
    """
    with _as_file(certificate) as chain, _as_file(key) as private:
        context.load_cert_chain(chain, private, password="")


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Give the path of a file with ``data`` that is gone afterwards. OpenSSL loads from files only.

    A file in memory touches no disk and works on a read-only file system. Systems without one get a temporary file,
    which no other user can read.
    """
    in_memory = hasattr(os, "memfd_create")
    with os.fdopen(os.memfd_create("wva"), "wb") if in_memory else tempfile.NamedTemporaryFile() as stream:
        stream.write(data)
        stream.flush()
        yield f"/proc/self/fd/{stream.fileno()}" if in_memory else stream.name

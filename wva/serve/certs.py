"""The certificate of ``/metrics``: from files, or self-signed and new at each start.

A pair from files is read again every ten seconds and swapped into the live TLS context when it changed; new handshakes
use the new one, open connections go on. Polling the bytes works on every volume type, also where the kubelet swaps a
symlinked directory and a watch on the file itself never fires.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from wva import log
from wva.clock import Clock

RELOAD_SECONDS: Final = 10.0
_VALIDITY: Final = timedelta(days=365)
_CLOCK_SKEW: Final = timedelta(minutes=10)


class CertificateError(Exception):
    """The configured pair cannot be used; the message names the files and says why."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where the pair lies."""

    certificate: Path
    key: Path


def server_context() -> ssl.SSLContext:
    """Return a TLS 1.2+ server context without a certificate, speaking HTTP/1.1 only."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


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


def self_signed_context(dns_names: list[str]) -> ssl.SSLContext:
    """Return a server context with a new self-signed certificate. The key touches the disk only for the load."""
    certificate, key = self_signed(dns_names, now=datetime.now(UTC))
    context = server_context()
    with tempfile.TemporaryDirectory(prefix="wva-cert-") as folder:
        files = CertificateFiles(Path(folder, "tls.crt"), Path(folder, "tls.key"))
        for path, data in ((files.certificate, certificate), (files.key, key)):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
        context.load_cert_chain(files.certificate, files.key)
    return context


class ReloadingCertificate:
    """A server context whose certificate follows its files."""

    def __init__(self, files: CertificateFiles) -> None:
        """Load the pair. Raises CertificateError when it cannot be used."""
        self._files = files
        self._logger = log.get("certs")
        self.context = server_context()
        self._seen = self._read()
        self._load(self.context)

    async def run(self, clock: Clock) -> None:
        """Follow the files until cancelled. A pair that does not load is reported and the last good one kept."""
        while True:
            await clock.sleep(RELOAD_SECONDS)
            self.poll()

    def poll(self) -> None:
        """Load the pair if its bytes changed."""
        try:
            current = self._read()
            if current == self._seen:
                return
            self._load(server_context())  # a trial first: a failed load would leave the live context half changed
            self._load(self.context)
        except CertificateError as error:
            self._logger.warning("certificate_rejected", reason=str(error), in_force="the last good certificate")
            with contextlib.suppress(CertificateError):
                self._seen = self._read()
            return
        self._seen = current
        self._logger.info("certificate_reloaded", path=str(self._files.certificate))

    def _read(self) -> tuple[bytes, bytes]:
        try:
            return self._files.certificate.read_bytes(), self._files.key.read_bytes()
        except OSError as error:
            raise CertificateError(f"cannot read {error.filename}: {error.strerror}") from error

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self._files.certificate, self._files.key)
        except (OSError, ssl.SSLError) as error:
            names = f"{self._files.certificate} and {self._files.key}"
            raise CertificateError(f"{names} are not a certificate and its private key: {error}") from error

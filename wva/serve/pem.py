"""Certificates as bytes: a new self-signed pair, and a pair from memory into a TLS context.

OpenSSL loads from files only. The key therefore goes through an anonymous file in memory where the system has those,
so that it touches no disk and works on a read-only file system, and through a private temporary folder elsewhere.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALIDITY: Final = timedelta(days=365)
_CLOCK_SKEW: Final = timedelta(minutes=10)


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
    """Load certificate and key (PEM) into ``context``. Raises ssl.SSLError when they are no pair, OSError.

    An encrypted key is one that does not load: without the empty password OpenSSL would ask for it on the terminal.
    """
    with ExitStack() as stack:
        chain, private = (stack.enter_context(_as_file(data)) for data in (certificate, key))
        context.load_cert_chain(chain, private, password="")


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Give the path of a file with ``data`` that only this process can find."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("wva-certificate"), "wb") as stream:
            stream.write(data)
            stream.flush()
            yield f"/proc/self/fd/{stream.fileno()}"
    else:
        with tempfile.TemporaryDirectory(prefix="wva-cert-") as folder:
            path = Path(folder, "pem")
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
                stream.write(data)
            yield str(path)

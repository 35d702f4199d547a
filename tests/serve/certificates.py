"""Certificates of the tests: an authority, certificate files on the disk, and TLS handshakes with a server."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime

import trustme
from cryptography import x509

from wva.serve.certs import CertificateFiles


class IssuedPair:
    """Certificate files of a test, issued by its own authority."""

    def __init__(self, folder):
        """Write a first pair."""
        self.authority = trustme.CA()
        self.files = CertificateFiles(folder / "tls.crt", folder / "tls.key")
        self.issue()

    def issue(self, **validity):
        """Write a new pair; ``not_before`` and ``not_after`` are seconds since the epoch."""
        dates = {name: datetime.fromtimestamp(seconds, UTC) for name, seconds in validity.items()}
        issued = self.authority.issue_cert("localhost", **dates)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        self.files.certificate.write_bytes(chain)
        self.files.key.write_bytes(issued.private_key_pem.bytes())

    def serial(self):
        """Return the serial number of the certificate on the disk."""
        return x509.load_pem_x509_certificate(self.files.certificate.read_bytes()).serial_number

    def trusting(self):
        """Return a client context that trusts only this authority."""
        return ssl.create_default_context(cadata=self.authority.cert_pem.bytes().decode())


async def handshake(port, context, *, name="localhost"):
    """Shake hands and return (TLS version, ALPN protocol, certificate of the server)."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    try:
        tls = writer.get_extra_info("ssl_object")
        return tls.version(), tls.selected_alpn_protocol(), tls.getpeercert(binary_form=True)
    finally:
        writer.close()
        await writer.wait_closed()


def blind():
    """Return a client context that does not verify certificates, so that the test can read each of them."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def served(port):
    """Return the serial number of the certificate that a new connection gets."""
    _, _, certificate = await handshake(port, blind())
    return x509.load_der_x509_certificate(certificate).serial_number

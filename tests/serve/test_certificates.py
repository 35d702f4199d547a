"""The certificate of ``/metrics``: self-signed, or from files that can change while the process runs."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import time
import warnings
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from tests.serve.certificates import IssuedPair, blind, handshake, served
from tests.serve.doubles import serving
from wva.instruments import Instruments
from wva.serve.certs import (
    CertificateError,
    ReloadingCertificate,
    SelfSignedCertificate,
    self_signed,
    server_context,
)
from wva.sim.world.clock import VirtualClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def listening(certificate):
    """Return a server on a free port with this certificate."""
    return serving(tls=lambda: certificate.context)


def unsigned(*names, clock=None):
    """Return a self-signed certificate with these names."""
    now = clock.now if clock else time.time
    return SelfSignedCertificate(list(names), instruments=Instruments(CollectorRegistry()), now=now)


# --- self-signed --------------------


def test_the_self_signed_certificate_names_its_services():
    """It names localhost, 127.0.0.1 and the given names.

    It is valid for a year from ten minutes ago, and for servers only.
    """
    pem, key = self_signed(["a.wva.svc", "a.wva.svc.cluster.local"], now=NOW)
    certificate = x509.load_pem_x509_certificate(pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "a.wva.svc", "a.wva.svc.cluster.local"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert certificate.not_valid_before_utc == NOW - timedelta(minutes=10)
    assert certificate.not_valid_after_utc == NOW + timedelta(days=365)
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert b"PRIVATE KEY" in key


def test_each_start_has_a_new_one():
    """Two certificates differ in key and serial number."""
    (first, one), (second, other) = self_signed([], now=NOW), self_signed([], now=NOW)
    assert one != other
    serials = {x509.load_pem_x509_certificate(pem).serial_number for pem in (first, second)}
    assert len(serials) == 2


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "metrics.wva.svc"])
async def test_a_client_that_trusts_it_accepts_it(name):
    """It is valid for each of its names, and for no other."""
    async with listening(unsigned("metrics.wva.svc")) as server:
        _, _, certificate = await handshake(server.port, blind())
        trusting = ssl.create_default_context(cadata=ssl.DER_cert_to_PEM_cert(certificate))
        version, protocol, _ = await handshake(server.port, trusting, name=name)
        assert version in {"TLSv1.2", "TLSv1.3"}
        assert protocol is None
        with pytest.raises(ssl.SSLCertVerificationError):
            await handshake(server.port, trusting, name="elsewhere.example")
        with pytest.raises(ssl.SSLCertVerificationError):
            await handshake(server.port, ssl.create_default_context(), name=name)


async def test_only_http_1_1_is_offered():
    """The handshake chooses HTTP/1.1 although the client prefers HTTP/2."""
    async with listening(unsigned()) as server:
        context = blind()
        context.set_alpn_protocols(["h2", "http/1.1"])
        assert (await handshake(server.port, context))[1] == "http/1.1"


async def test_old_tls_is_refused():
    """A client with TLS 1.1 or older cannot connect."""
    async with listening(unsigned()) as server:
        old = blind()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old.minimum_version = ssl.TLSVersion.TLSv1
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await handshake(server.port, old)
        only = blind()
        only.maximum_version = ssl.TLSVersion.TLSv1_2
        assert (await handshake(server.port, only))[0] == "TLSv1.2"


def test_the_lowest_version_is_1_2():
    """WVA sets the minimum itself, and does not depend on the default of the library."""
    assert server_context().minimum_version == ssl.TLSVersion.TLSv1_2


def test_the_key_does_not_stay_on_the_disk(tmp_path, monkeypatch):
    """No file is left after the self-signed certificate was loaded."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    unsigned()
    assert list(tmp_path.iterdir()) == []


# --- from files --------------------


@pytest.fixture
def pair(tmp_path):
    """Return a pair on the disk."""
    return IssuedPair(tmp_path)


def following(pair, *, clock=None, instruments=None):
    """Return a certificate that follows the files of ``pair``."""
    now = clock.now if clock else time.time
    return ReloadingCertificate(pair.files, instruments=instruments or Instruments(CollectorRegistry()), now=now)


async def test_a_new_pair_is_served_to_new_connections(pair):
    """WVA serves it without a restart, and clients that trust the authority accept it."""
    certificate = following(pair)
    async with listening(certificate) as server:
        assert await served(server.port) == pair.serial()
        pair.issue()
        certificate.poll()
        assert await served(server.port) == pair.serial()
        await handshake(server.port, pair.trusting())


@pytest.mark.parametrize("which", ["certificate", "key", "both", "mismatch", "half", "empty", "missing"])
async def test_garbage_keeps_the_last_good_one(pair, tmp_path, which):
    """WVA logs a bad pair once, not at each poll, and takes the next good pair."""
    certificate = following(pair)
    good = pair.serial()
    _spoil(pair, tmp_path, which)
    async with listening(certificate) as server:
        with capture_logs() as lines:
            certificate.poll()
        assert [line["event"] for line in lines] == ["certificate_rejected"]
        assert await served(server.port) == good
        if which != "missing":
            with capture_logs() as lines:
                certificate.poll()
            assert lines == []
        pair.issue()
        certificate.poll()
        assert await served(server.port) == pair.serial()


def _spoil(pair, tmp_path, which):
    if which in {"certificate", "both"}:
        pair.files.certificate.write_text("nonsense", encoding="utf-8")
    if which in {"key", "both"}:
        pair.files.key.write_text("nonsense", encoding="utf-8")
    if which == "mismatch":
        other = tmp_path / "other"
        other.mkdir()
        shutil.copy(IssuedPair(other).files.key, pair.files.key)
    if which == "half":  # the certificate is new, the key is still the old one
        key = pair.files.key.read_bytes()
        pair.issue()
        pair.files.key.write_bytes(key)
    if which == "empty":
        pair.files.certificate.write_bytes(b"")
    if which == "missing":
        pair.files.certificate.unlink()


async def test_the_old_pair_put_back_after_garbage_is_quietly_served(pair):
    """When the old files are restored, WVA serves the same certificate as before."""
    certificate = following(pair)
    old = pair.files.certificate.read_bytes()
    pair.files.certificate.write_text("nonsense", encoding="utf-8")
    certificate.poll()
    pair.files.certificate.write_bytes(old)
    certificate.poll()
    async with listening(certificate) as server:
        assert await served(server.port) == pair.serial()


def test_unchanged_files_are_not_loaded_again(pair):
    """A poll without a change logs nothing."""
    certificate = following(pair)
    with capture_logs() as lines:
        certificate.poll()
    assert lines == []


@pytest.mark.parametrize("which", ["certificate", "key"])
def test_a_missing_file_at_the_start_is_an_error_that_names_it(pair, which):
    """Without its certificate files WVA does not start to serve."""
    path = getattr(pair.files, which)
    path.unlink()
    with pytest.raises(CertificateError, match=f"cannot read {path}: No such file"):
        following(pair)


def test_files_that_are_no_pair_at_the_start_are_an_error(pair):
    """The error names both files."""
    pair.files.key.write_text("nonsense", encoding="utf-8")
    with pytest.raises(CertificateError, match=r"tls\.crt and .*tls\.key are not a certificate and its private key"):
        following(pair)


async def test_the_files_are_looked_at_every_ten_seconds(pair):
    """Ten seconds of the given clock pass between two polls."""
    certificate = following(pair)
    clock = VirtualClock()
    async with listening(certificate) as server:
        task = asyncio.create_task(certificate.run(clock))
        await asyncio.sleep(0)
        pair.issue()
        clock.advance_to(9.9)
        await asyncio.sleep(0)
        assert await served(server.port) != pair.serial()
        clock.advance_to(10.0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert await served(server.port) == pair.serial()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

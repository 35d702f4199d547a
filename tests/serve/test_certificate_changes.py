"""Certificates that are replaced by bad files, that expire, or that are replaced under load."""

from __future__ import annotations

import asyncio
import itertools
import os
import ssl
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from tests.serve.certificates import IssuedPair, blind, handshake, served
from tests.serve.doubles import exchange, serving
from wva.instruments import Instruments
from wva.serve.certs import CertificateError, ReloadingCertificate, SelfSignedCertificate, load_pair
from wva.sim.world.clock import VirtualClock

DAY = 86_400.0
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class FollowedCertificate:
    """A certificate that follows its files, with its metrics, on a clock that the test sets."""

    def __init__(self, folder):
        """Write a first pair, good for a year from now on."""
        self.pair = IssuedPair(folder)
        self.instruments = Instruments(CollectorRegistry())
        self.seconds = time.time()
        self.pair.issue(not_before=self.seconds - 60, not_after=self.seconds + 365 * DAY)
        self.certificate = self.load()

    def load(self):
        """Load the pair as a process does when it starts."""
        return ReloadingCertificate(self.pair.files, instruments=self.instruments, now=lambda: self.seconds)

    def issue(self, *, begins_days=0.0, ends_days):
        """Write a pair with these dates, in days from the test's clock."""
        self.pair.issue(not_before=self.seconds + begins_days * DAY - 60, not_after=self.seconds + ends_days * DAY)

    def poll(self):
        """Check the files, and return the events that are logged."""
        with capture_logs() as lines:
            self.certificate.poll()
        return [line["event"] for line in lines]

    async def serial(self):
        """Return the serial number of the certificate that is served now."""
        async with serving(tls=lambda: self.certificate.context) as server:
            return await served(server.port)

    def metric(self, name, **labels):
        """Return a metric of WVA, 0 if it was never set."""
        return self.instruments.registry.get_sample_value(name, labels) or 0


@pytest.fixture
def watched(tmp_path):
    """Return a certificate that follows its files."""
    return FollowedCertificate(tmp_path)


# --- pairs that are rejected --------------------


@pytest.mark.parametrize("dates", [{"begins_days": -9, "ends_days": -1}, {"begins_days": 1, "ends_days": 9}])
async def test_a_pair_that_is_not_valid_now_does_not_replace_one_that_is(watched, dates):
    """Verifying scrapers would reject the new pair. WVA logs and counts it once, and serves the valid pair."""
    good = watched.pair.serial()
    watched.issue(**dates)
    assert watched.poll() == ["certificate_rejected"]
    assert watched.poll() == []
    assert await watched.serial() == good
    assert watched.metric("wva_certificate_reloads_total", result="rejected") == 1


def test_the_same_mistake_is_told_again_after_it_was_mended(watched):
    """The same bad key is logged again if a good one was there in between."""
    good, told = watched.pair.files.key.read_bytes(), []
    for key in (b"nonsense", b"nonsense", good, b"nonsense"):
        watched.pair.files.key.write_bytes(key)
        told.append(watched.poll())
    assert told == [["certificate_rejected"], [], [], ["certificate_rejected"]]
    assert watched.metric("wva_certificate_reloads_total", result="rejected") == 2


async def test_a_pair_from_the_future_is_taken_when_its_time_comes(watched):
    """WVA loads the pair when it becomes valid, though the files do not change then."""
    watched.issue(begins_days=1, ends_days=9)
    watched.poll()
    watched.seconds += 1.5 * DAY
    assert watched.poll() == ["certificate_reloaded"]
    assert await watched.serial() == watched.pair.serial()


async def test_any_new_pair_replaces_one_that_has_run_out(watched):
    """An expired pair replaces another expired pair."""
    watched.seconds += 400 * DAY
    watched.issue(begins_days=-9, ends_days=-1)
    assert "certificate_reloaded" in watched.poll()
    assert await watched.serial() == watched.pair.serial()


def test_a_pair_that_has_run_out_is_served_at_the_start(watched):
    """At its start WVA serves an expired pair, and logs an error. Many scrapers do not verify the certificate."""
    watched.issue(begins_days=-9, ends_days=-1)
    with capture_logs() as lines:
        watched.load()
    assert [(line["event"], line["log_level"]) for line in lines] == [("certificate_expired", "error")]


def test_an_encrypted_key_is_an_error_and_not_a_question(watched):
    """The certificate loader refuses an encrypted key instead of asking for its password."""
    key = load_pem_private_key(watched.pair.files.key.read_bytes(), None)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hidden"))
    watched.pair.files.key.write_bytes(secret)
    with pytest.raises(CertificateError, match="are not a certificate and its private key"):
        watched.load()
    assert watched.poll() == ["certificate_rejected"]


@pytest.mark.parametrize("kind", ["pipe", "folder", "endless", "loop"])
def test_what_is_no_file_is_not_waited_for(watched, kind):
    """Reading a pipe would block the process for ever, and reading a device would fill its memory."""
    path = watched.pair.files.certificate
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    else:
        path.symlink_to(path.name)
    with pytest.raises(CertificateError, match=f"cannot read {path}: "):
        watched.load()
    assert watched.poll() == ["certificate_rejected"]


def test_a_file_that_is_far_too_large_is_refused(watched):
    """A key file of more than 1 MiB is refused."""
    with watched.pair.files.key.open("r+b") as file:
        file.truncate(1024 * 1024 + 1)
    with pytest.raises(CertificateError, match="larger than 1048576 bytes"):
        watched.load()


async def test_a_change_between_two_reads_is_seen_whole(watched, monkeypatch):
    """If the files change between the two reads, WVA does not mix an old certificate with a new key."""
    real, reads = os.open, itertools.count(1)

    def swapping(path, *more):
        if str(path) == str(watched.pair.files.key) and next(reads) == 1:
            watched.pair.issue()
        return real(path, *more)

    watched.pair.issue()
    monkeypatch.setattr("wva.serve.certs.os.open", swapping)
    assert watched.poll() == ["certificate_reloaded"]
    assert await watched.serial() == watched.pair.serial()


# --- expiry --------------------


def test_the_end_of_a_certificate_is_told_a_week_before(watched):
    """WVA logs it a week before the end, and again at the end. The metric always shows the date."""
    ends = watched.metric("wva_certificate_expiry_timestamp_seconds")
    assert ends == pytest.approx(watched.seconds + 365 * DAY, abs=2)
    told = []
    for days in (357, 359, 360, 366, 367):
        watched.seconds = ends - 365 * DAY + days * DAY
        told.append(watched.poll())
    assert told == [[], ["certificate_expiring"], [], ["certificate_expired"], []]


def test_a_short_life_is_told_in_its_last_fifth(watched):
    """If the certificate is valid for one day only, WVA warns in the last fifth of that day."""
    watched.issue(ends_days=1)
    assert watched.poll() == ["certificate_reloaded"]
    watched.seconds += 0.75 * DAY
    assert watched.poll() == []
    watched.seconds += 0.1 * DAY
    assert watched.poll() == ["certificate_expiring"]
    watched.issue(ends_days=1)
    assert watched.poll() == ["certificate_reloaded"]
    watched.seconds += 0.85 * DAY
    assert watched.poll() == ["certificate_expiring"]


async def test_a_self_signed_certificate_is_renewed_while_it_serves():
    """WVA renews it thirty days before its end. It checks every hour of the clock."""
    clock, instruments = VirtualClock(), Instruments(CollectorRegistry())
    certificate = SelfSignedCertificate(["a.svc"], instruments=instruments, now=clock.now)
    task = asyncio.create_task(certificate.run(clock))
    await asyncio.sleep(0)
    first = certificate.context
    contexts = []
    for days in (300, 334.9, 335.1, 400):
        clock.advance_to(days * DAY)
        for _ in range(5):
            await asyncio.sleep(0)
        contexts.append(certificate.context)
    assert contexts[0] is contexts[1] is first
    assert contexts[2] is not first
    assert contexts[3] is contexts[2]
    ends = instruments.registry.get_sample_value("wva_certificate_expiry_timestamp_seconds")
    assert ends > clock.now() + 290 * DAY
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- under load --------------------


async def test_no_scrape_fails_while_the_certificate_changes(watched):
    """Each handshake gets a matching pair that the authority signed. A new pair is served right after the poll."""
    ended = asyncio.Event()
    async with serving(tls=lambda: watched.certificate.context) as server:

        async def scrape():
            count = 0
            while not ended.is_set():
                received = await exchange(server.port, REQUEST, context=watched.pair.trusting(), name="localhost")
                assert received.startswith(b"HTTP/1.1 200")
                count += 1
            return count

        scrapers = [asyncio.create_task(scrape()) for _ in range(4)]
        for _ in range(10):
            watched.pair.issue()
            watched.certificate.poll()
            assert await served(server.port) == watched.pair.serial()
            watched.pair.files.key.write_text("nonsense", encoding="utf-8")
            watched.certificate.poll()
        ended.set()
        counts = await asyncio.gather(*scrapers)
    assert min(counts) > 0


async def test_an_open_connection_outlives_the_change(watched):
    """A scraper can go on using a connection that it opened before the change."""
    async with serving(tls=lambda: watched.certificate.context) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=blind())
        watched.pair.issue()
        watched.certificate.poll()
        writer.write(REQUEST)
        assert (await reader.read(15)).startswith(b"HTTP/1.1 200")
        writer.close()


@pytest.mark.parametrize("cipher", ["ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384"])
async def test_weak_ciphers_are_refused(watched, cipher):
    """The server refuses ciphers without authenticated encryption, and accepts the same client with a better cipher."""
    async with serving(tls=lambda: watched.certificate.context) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await handshake(server.port, _insisting_on(cipher))
        assert (await handshake(server.port, _insisting_on("ECDHE-ECDSA-AES128-GCM-SHA256")))[0] == "TLSv1.2"


def _insisting_on(cipher):
    context = blind()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(f"{cipher}:@SECLEVEL=0")
    return context


def test_a_pair_is_loaded_from_memory_with_a_password_that_asks_nobody(tmp_path, monkeypatch):
    """OpenSSL gets an empty password, so it does not ask at the terminal.

    The files that it reads are removed after that.
    """
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    class CountingRecorder:
        def load_cert_chain(self, certificate, key, password=None):
            self.paths = (certificate, key)
            self.seen = (Path(certificate).read_bytes(), Path(key).read_bytes(), password)

    recorder = CountingRecorder()
    load_pair(recorder, b"a certificate", b"a key")
    assert recorder.seen == (b"a certificate", b"a key", "")
    assert not [path for path in recorder.paths if Path(path).exists()]
    monkeypatch.delattr("os.memfd_create", raising=False)
    load_pair(recorder, b"elsewhere", b"the same")
    assert recorder.seen == (b"elsewhere", b"the same", "")
    assert not [path for path in recorder.paths if Path(path).exists()]
    assert list(tmp_path.iterdir()) == []

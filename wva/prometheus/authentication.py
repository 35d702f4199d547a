"""How WVA proves to Prometheus who it is (bearer token, client certificate, additions), and which CAs it trusts.

Kubernetes replaces mounted secrets and projected tokens under a running process: it swaps a symbolic link, or writes
one file after the other. So WVA reads the files for every query and compares their content, since time stamps, inodes
and links may hide a change. A TLS context takes long to build, so it is built only from new content. While files cannot
be used (gone, half written, a certificate without its new key), the last good ones stay in force. WVA logs this once,
and a gauge shows it for as long as it lasts.

WVA checks the files in the same way when it starts. A message names a file and the setting that points to it, never the
content of the file.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

from wva import log
from wva.command_error import CommandError, UsageError
from wva.config import Inputs, load
from wva.config.declare import is_header_safe, strip_token
from wva.config.load import URL_KEY
from wva.instruments import Instruments
from wva.prometheus.additions import EXPECTED_HEADERS, EXPECTED_PARAMETERS, Additions, read_headers, read_parameters
from wva.prometheus.answers import ErrorKind, PrometheusError, Secrets
from wva.prometheus.settings import PrometheusSettings

CA_KEY: Final = "PROMETHEUS_CA_CERT_PATH"
CERTIFICATE_KEY: Final = "PROMETHEUS_CLIENT_CERT_PATH"
PRIVATE_KEY_KEY: Final = "PROMETHEUS_CLIENT_KEY_PATH"
TOKEN_KEY: Final = "PROMETHEUS_TOKEN_PATH"  # noqa: S105 - the name of a setting
HEADERS_KEY: Final = "PROMETHEUS_HEADERS_PATH"
PARAMETERS_KEY: Final = "PROMETHEUS_PARAMETERS_PATH"
SERVER_NAME_KEY: Final = "PROMETHEUS_SERVER_NAME"

_NAME_MISMATCHES: Final = frozenset({62, 64})
"""OpenSSL's codes for a certificate with another name or IP address than the host has."""

_EXPECTED: Final = {
    CA_KEY: "a file with CA certificates in PEM",
    CERTIFICATE_KEY: "a file with a certificate in PEM",
    PRIVATE_KEY_KEY: "a file with the private key of the certificate in PEM, not encrypted",
    TOKEN_KEY: "a file with one line of printable ASCII",
    HEADERS_KEY: EXPECTED_HEADERS,
    PARAMETERS_KEY: EXPECTED_PARAMETERS,
}
_MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""A bundle of every public CA has a quarter of a MiB."""

T = TypeVar("T")

_log = log.get("collect.prometheus")


@dataclass(frozen=True, slots=True)
class QueryCredentials:
    """What a query is sent with: token (empty: none), additions, and TLS context (None: plain HTTP)."""

    token: str = field(repr=False)
    headers: Additions = field(repr=False)
    parameters: Additions = field(repr=False)
    tls: ssl.SSLContext | None

    @property
    def secrets(self) -> Secrets:
        """What no message may show."""
        return (self.token, *(value for _, value in (*self.headers, *self.parameters)))


def remedy(error: Exception) -> str:
    """Return which setting helps where the certificate of Prometheus cannot be verified; empty for other errors."""
    cause = getattr(error, "certificate_error", error)
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return ""
    if cause.verify_code in _NAME_MISMATCHES:
        return f" ({SERVER_NAME_KEY} is the name that the certificate has)"
    return f" ({CA_KEY} is the file with the CA that signed the certificate)"


class UnusableFileError(Exception):
    """A file that cannot be used. The message says which, why, and what was expected."""


class Authentication:
    """The token, the additions and the TLS context in force."""

    def __init__(self, settings: PrometheusSettings, *, instruments: Instruments) -> None:
        """Note the files; nothing is read yet. A text in the settings themselves wins over a file."""
        self._token = _file_text(_TOKEN, strip_token(settings.bearer_token), settings.token_path, instruments)
        self._headers = _file_text(_HEADERS, settings.headers, settings.headers_path, instruments)
        self._parameters = _file_text(_PARAMETERS, settings.parameters, settings.parameters_path, instruments)
        self._tls = _FileValue(
            what="TLS files",
            paths=_tls_paths(settings),
            make=lambda: build_context(settings),
            kind=ErrorKind.UNREACHABLE,
            usable=lambda yes: instruments.prometheus_credentials_usable.labels("tls").set(yes),
        )
        self._plain = settings.base_url.startswith("http://")

    def current(self) -> QueryCredentials:
        """Return what the next query is sent with; the same TLS context object until the content of a file changes.

        Raises PrometheusError when a file cannot be used and never could.
        """
        return QueryCredentials(
            self._token.current(),
            self._headers.current(),
            self._parameters.current(),
            None if self._plain else self._tls.current(),
        )


@dataclass(eq=False, slots=True, kw_only=True)
class _FileValue(Generic[T]):
    """A value made from files: made again when their content changes, and kept while that fails.

    ``paths`` has each file by the setting that names it; ``usable`` is called after each look at the files.
    """

    what: str
    paths: dict[str, str]
    make: Callable[[], T]
    kind: ErrorKind
    usable: Callable[[bool], None]
    value: T | None = None
    digest: bytes | None = None
    last_error: str = ""

    def current(self) -> T:
        """Return the value, or the last good one. Raises PrometheusError of ``kind`` if the files were never usable."""
        try:
            # The digest is taken before the files are used: a change between the two is noticed at the next look. It
            # stands for the content, so that no private key stays in memory for the comparison.
            contents = (read_file(key, path) for key, path in self.paths.items())
            digest = b"".join(hashlib.sha256(content).digest() for content in contents)
            if self.value is None or digest != self.digest:
                self.value, changed = self.make(), self.value is not None
                self.digest = digest
                if changed:
                    _log.info("credentials_reloaded", what=self.what)
        except UnusableFileError as error:
            self.usable(False)
            if self.value is None:
                raise PrometheusError(self.kind, str(error)) from error
            if self.last_error != str(error):
                self.last_error = str(error)
                _log.warning(
                    "credentials_unusable", what=self.what, reason=self.last_error, in_force="the last good ones"
                )
        else:
            self.last_error = ""
            if self.paths:
                self.usable(True)
        return self.value


def read_file(key: str, path: str) -> bytes:
    """Return the content of the file that a setting names. Raises UnusableFileError.

    A pipe or a device is no file: reading it might block the process, or never end.
    """
    file = Path(path)
    try:
        if file.exists() and not file.is_file():
            raise _unusable(key, path, "is not a regular file")
        with file.open("rb") as opened:
            content = opened.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: an invalid path, such as one with a NUL inside
        raise _unusable(key, path, f"cannot be read: {_reason(error)}") from error
    if len(content) > _MAX_FILE_BYTES:
        raise _unusable(key, path, f"is larger than {_MAX_FILE_BYTES // 1024 // 1024} MiB")
    return content


def _token_in(text: str) -> str:
    """Return the bearer token in a text. Raises ValueError."""
    token = strip_token(text)
    if not token or not is_header_safe(token):
        raise ValueError("contains no token")
    return token


@dataclass(frozen=True, slots=True)
class _TextKind(Generic[T]):
    """A kind of text of the connection: the setting that names its file, its words in the log, its label in the gauge.

    ``read`` returns what a text means or raises ValueError, which shows no secret. ``nothing`` stands for no text.
    """

    key: str
    what: str
    label: str
    read: Callable[[str], T]
    nothing: T

    def in_file(self, path: str) -> T:
        """Return what the text of a file means. Raises UnusableFileError."""
        try:
            return self.read(read_file(self.key, path).decode("utf-8", errors="replace"))
        except ValueError as error:
            raise _unusable(self.key, path, str(error)) from error


_TOKEN: Final = _TextKind(TOKEN_KEY, "bearer token", "token", _token_in, "")
_HEADERS: Final[_TextKind[Additions]] = _TextKind(HEADERS_KEY, "headers", "headers", read_headers, ())
_PARAMETERS: Final[_TextKind[Additions]] = _TextKind(PARAMETERS_KEY, "parameters", "parameters", read_parameters, ())


def _file_text(kind: _TextKind[T], text: str, path: str, instruments: Instruments) -> _FileValue[T]:
    """Follow a file, unless the settings have the text themselves or name no file."""
    from_file = bool(path) and not text
    return _FileValue(
        what=kind.what,
        paths={kind.key: path} if from_file else {},
        make=(lambda: kind.in_file(path)) if from_file else (lambda: kind.read(text) if text else kind.nothing),
        kind=ErrorKind.UNAUTHORIZED,
        usable=lambda yes: instruments.prometheus_credentials_usable.labels(kind.label).set(yes),
    )


def build_context(settings: PrometheusSettings) -> ssl.SSLContext:
    """Return a client context for TLS 1.2 and newer, with the CAs and the client certificate of the settings.

    Without a CA file it trusts the CAs of the system. Raises UnusableFileError, also for a certificate and a key that
    do not belong together.
    """
    ca, certificate, key = settings.ca_cert_path, settings.client_cert_path, settings.client_key_path
    skip = settings.insecure_skip_verify
    try:
        context = ssl.create_default_context(cafile=None if skip else ca or None)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise _unusable(CA_KEY, ca, f"cannot be used: {_reason(error)}") from error
    if skip:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate:
        try:
            # Without a password OpenSSL would ask for that of an encrypted key on the terminal and block the process.
            context.load_cert_chain(certificate, key, password="")
        except (OSError, ValueError) as error:
            raise UnusableFileError(
                f"{CERTIFICATE_KEY}={certificate!r} and {PRIVATE_KEY_KEY}={key!r} are no pair: {_reason(error)}; "
                "expected a certificate and its private key in PEM, not encrypted"
            ) from error
    return context


def connection_of(url: str, flag: str, environment: Mapping[str, str]) -> PrometheusSettings:
    """Return the connection of a command: to the URL of its flag, the rest as the environment says to ``wva run``.

    Plain HTTP is allowed, because the user has written the URL. Raises CommandError, which names the flag.
    """
    process_settings = load(Inputs({}, environment, {})).settings
    http = url.startswith("http://") or process_settings.prometheus_allow_http
    settings = replace(PrometheusSettings.of(process_settings), base_url=url, allow_http=http)
    problems = connection_problems(settings)
    if problems:
        kind = UsageError if any(problem.startswith(URL_KEY) for problem in problems) else CommandError
        raise kind("\n".join(problem.replace(URL_KEY, flag) for problem in problems))
    return settings


def connection_problems(settings: PrometheusSettings) -> list[str]:
    """Return the problems of the settings and files at the start of the process, one sentence each.

    If a file goes or breaks later, the process does not end: the last good content stays in force.
    """
    problems = settings.problems()
    if problems:
        return problems

    def check(read: Callable[[], object]) -> bool:
        """Tell whether ``read`` succeeds; note the problem if it does not."""
        try:
            read()
        except UnusableFileError as error:
            problems.append(str(error))
            return False
        return True

    if settings.token_path and not strip_token(settings.bearer_token):
        check(lambda: _TOKEN.in_file(settings.token_path))
    if settings.headers_path and not settings.headers:
        check(lambda: _HEADERS.in_file(settings.headers_path))
    if settings.parameters_path and not settings.parameters:
        check(lambda: _PARAMETERS.in_file(settings.parameters_path))
    if settings.insecure_skip_verify or settings.base_url.startswith("http://"):
        return problems  # without TLS, its files do not matter
    # Read each file on its own first: the errors of a TLS library do not name the file.
    readable = [check(partial(read_file, key, path)) for key, path in _tls_paths(settings).items()]
    if all(readable):
        check(lambda: build_context(replace(settings, client_cert_path="", client_key_path="")))
        check(lambda: build_context(replace(settings, ca_cert_path="", insecure_skip_verify=True)))
    return problems


def _tls_paths(settings: PrometheusSettings) -> dict[str, str]:
    """Return the files of TLS that are set, by the setting that names them."""
    paths = {
        # With verification off the CA file is not even read: it must not keep the controller from working.
        CA_KEY: "" if settings.insecure_skip_verify else settings.ca_cert_path,
        CERTIFICATE_KEY: settings.client_cert_path,
        PRIVATE_KEY_KEY: settings.client_key_path,
    }
    return {key: path for key, path in paths.items() if path}


def _unusable(key: str, path: str, problem: str) -> UnusableFileError:
    return UnusableFileError(f"{key}={path!r} {problem}; expected {_EXPECTED[key]}")


def _reason(error: OSError | ValueError) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return text or str(error) or type(error).__name__

"""How Prometheus is reached, and whether that can work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import SplitResult, urlsplit

from wva.collect import credential_files as files
from wva.collect.credential_files import UnusableFileError


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Settings of the connection to Prometheus: ``PROMETHEUS_*``.

    ``bearer_token`` wins over ``token_path``. Paths are of files in PEM; empty means not set. ``server_name`` is the
    name that the certificate must carry when it differs from the host of the URL.
    """

    base_url: str
    allow_http: bool = False
    ca_cert_path: str = ""
    client_cert_path: str = ""
    client_key_path: str = ""
    server_name: str = ""
    insecure_skip_verify: bool = False
    bearer_token: str = field(default="", repr=False)
    token_path: str = ""

    def validate(self) -> list[str]:
        """Return what is wrong at the start of the process, one sentence each, the files included.

        A file that goes or breaks later is no reason to end: the last good one stays in force (``credentials``).
        """
        return self.validate_values() or self._file_problems()

    def validate_values(self) -> list[str]:
        """Return what is wrong with the values alone: the key, its value unless secret, and what is expected."""
        problems = self._url_problems()
        if bool(self.client_cert_path) != bool(self.client_key_path):
            key, other = "PROMETHEUS_CLIENT_CERT_PATH", "PROMETHEUS_CLIENT_KEY_PATH"
            if self.client_key_path:
                key, other = other, key
            problems.append(f"{key} is set without {other}: a client certificate needs both")
        if not files.is_header_safe(self.bearer_token):
            problems.append("PROMETHEUS_BEARER_TOKEN (hidden) has spaces, line ends or characters outside ASCII inside")
        return problems

    def _file_problems(self) -> list[str]:
        """Return which files cannot be used. Those of TLS do not matter without it, or without verification."""
        problems: list[str] = []
        if self.token_path and not files.strip_token(self.bearer_token):
            problems += _problems(partial(files.read_token, self.token_path))
        if self.insecure_skip_verify or self.base_url.startswith("http://"):
            return problems
        # Each file is read on its own first: the errors of a TLS library do not say which one they mean.
        paths = {
            files.CA_KEY: self.ca_cert_path,
            files.CERTIFICATE_KEY: self.client_cert_path,
            files.PRIVATE_KEY_KEY: self.client_key_path,
        }
        unreadable = _problems(*(partial(files.read_file, key, path) for key, path in paths.items() if path))
        if unreadable:
            return problems + unreadable
        return problems + _problems(partial(files.verifying_context, self.ca_cert_path), self._try_pair)

    def _try_pair(self) -> None:
        if self.client_cert_path:
            files.load_client_pair(files.unverified_context(), self.client_cert_path, self.client_key_path)

    def _url_problems(self) -> list[str]:
        key = "PROMETHEUS_BASE_URL"
        if not self.base_url:
            return [f"{key} is not set: expected a URL such as https://prometheus.monitoring.svc:9090"]
        try:
            url = urlsplit(self.base_url)
            # urlsplit drops line ends without a word: "https://a" and "b" on two lines would be the host "ab".
            whole = all(character.isprintable() and character != " " for character in self.base_url.strip())
            usable = whole and bool(url.hostname) and (url.port is None or url.port > 0)
        except ValueError:
            return [f"{key} is not a URL: expected one such as https://prometheus.monitoring.svc:9090"]
        shown = _without_user(url)
        if url.scheme not in {"https", "http"} or not usable:
            return [f"{key} is {shown!r}: expected a URL such as https://prometheus.monitoring.svc:9090"]
        problems = []
        if url.username is not None or url.password is not None:
            problems.append(f"{key} contains a user: expected PROMETHEUS_BEARER_TOKEN or a client certificate instead")
        if url.query or url.fragment:
            problems.append(f"{key} is {shown!r}: expected no query and no fragment")
        if url.scheme == "http" and not self.allow_http:
            problems.append(f"{key} is {shown!r}: expected https:// (or PROMETHEUS_ALLOW_HTTP=true for plain HTTP)")
        return problems


def _problems(*checks: Callable[[], object]) -> list[str]:
    found = []
    for check in checks:
        try:
            check()
        except UnusableFileError as error:
            found.append(str(error))
    return found


def _without_user(url: SplitResult) -> str:
    return url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()

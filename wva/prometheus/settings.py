"""The settings of the connection to Prometheus, and their problems; ``authentication`` reads the files."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from wva.config.declare import is_header_safe
from wva.config.keys import Settings
from wva.prometheus.additions import EXPECTED_HEADERS, EXPECTED_PARAMETERS, read_headers, read_parameters


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Settings of the connection to Prometheus: ``PROMETHEUS_*``.

    ``bearer_token``, ``headers`` and ``parameters`` win over the files of their paths. The other paths name files in
    PEM; empty means not set. ``server_name`` is the name that the certificate must carry when it differs from the host
    of the URL.
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
    headers: str = field(default="", repr=False)
    headers_path: str = ""
    parameters: str = field(default="", repr=False)
    parameters_path: str = ""

    @staticmethod
    def of(settings: Settings) -> PrometheusSettings:
        """Return the part of the process's settings that is about Prometheus."""
        return PrometheusSettings(
            base_url=settings.prometheus_base_url,
            allow_http=settings.prometheus_allow_http,
            ca_cert_path=settings.prometheus_ca_cert_path,
            client_cert_path=settings.prometheus_client_cert_path,
            client_key_path=settings.prometheus_client_key_path,
            server_name=settings.prometheus_server_name,
            insecure_skip_verify=settings.prometheus_tls_insecure_skip_verify,
            bearer_token=settings.prometheus_bearer_token.get_secret_value(),
            token_path=settings.prometheus_token_path,
            headers=settings.prometheus_headers.get_secret_value(),
            headers_path=settings.prometheus_headers_path,
            parameters=settings.prometheus_parameters.get_secret_value(),
            parameters_path=settings.prometheus_parameters_path,
        )

    def problems(self) -> list[str]:
        """Return a line for each wrong value: the key, its value unless secret, and what is expected."""
        problems = self._url_problems()
        if bool(self.client_cert_path) != bool(self.client_key_path):
            key, missing_key = "PROMETHEUS_CLIENT_CERT_PATH", "PROMETHEUS_CLIENT_KEY_PATH"
            if self.client_key_path:
                key, missing_key = missing_key, key
            problems.append(f"{key} is set without {missing_key}: a client certificate needs both")
        if not is_header_safe(self.bearer_token):
            problems.append("PROMETHEUS_BEARER_TOKEN (hidden) has spaces, line ends or characters outside ASCII inside")
        for key, text, read, expected in (
            ("PROMETHEUS_HEADERS", self.headers, read_headers, EXPECTED_HEADERS),
            ("PROMETHEUS_PARAMETERS", self.parameters, read_parameters, EXPECTED_PARAMETERS),
        ):
            try:
                read(text) if text else ()
            except ValueError as error:
                problems.append(f"{key} (hidden) {error}: expected {expected}")
        return problems

    def _url_problems(self) -> list[str]:
        key = "PROMETHEUS_BASE_URL"
        if not self.base_url:
            return [f"{key} is not set: expected a URL such as https://prometheus.monitoring.svc:9090"]
        try:
            url = urlsplit(self.base_url)
            # urlsplit silently drops line ends: "https://a" and "b" on two lines would be the host "ab".
            whole = all(character.isprintable() and character != " " for character in self.base_url.strip())
            usable = whole and bool(url.hostname) and (url.port is None or url.port > 0)
        except ValueError:
            return [f"{key} is not a URL: expected one such as https://prometheus.monitoring.svc:9090"]
        shown = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()
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

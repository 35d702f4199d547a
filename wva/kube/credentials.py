"""Credentials: where they are found, and how they change while the process runs.

WVA uses kubernetes_asyncio for kubeconfig, in-cluster credentials, exec plug-ins and TLS. ``find`` fills its
configuration from the first source that exists. WVA reads the token in it before each request, and new connections
present the certificate that ``TlsContext`` loads. WVA logs neither.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import ssl
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Final

from wva import log
from wva.kube.errors import ConfigurationError

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
KUBECONFIG: Final = Path("~/.kube/config")
RENEWAL_SECONDS: Final = 60.0
"""How often WVA checks an expiring token; client-go re-reads credentials once per minute, too."""
REFUSED_SECONDS: Final = 10.0
"""How soon after the last look a refusal (401) may run the exec plug-in again."""
_NAME: Final = "kubernetes_asyncio"

_log = log.get("kube.credentials")


@cache
def library() -> SimpleNamespace:
    """Return the library's configuration class, and its loaders for kubeconfig and service account.

    The library has 900 modules of generated APIs and models, and importing any part of it imports all of them, which
    takes 0.4 s and 38 MiB of memory that is never freed. WVA does not need these modules. So while it imports the
    modules for credentials, empty packages replace the packages that import everything.
    """
    imported = _NAME in sys.modules
    if not imported:
        spec = importlib.util.find_spec(_NAME)
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
        for name, below in ((_NAME, ""), (f"{_NAME}.client", "/client"), (f"{_NAME}.config", "/config")):
            package = ModuleType(name)
            package.__path__ = [f"{folder}{below}" for folder in folders]
            sys.modules[name] = package
    try:
        configuration = importlib.import_module(f"{_NAME}.client.configuration").Configuration
        client = sys.modules[f"{_NAME}.client"]
        if not hasattr(client, "Configuration"):
            client.Configuration = client.ApiClient = configuration  # type: ignore[attr-defined]  # only named there
        kube_config = importlib.import_module(f"{_NAME}.config.kube_config")
        incluster = importlib.import_module(f"{_NAME}.config.incluster_config")
    finally:
        # A later import of the library as usual gets all of it.
        for name in [name for name in sys.modules if not imported and name.partition(".")[0] == _NAME]:
            del sys.modules[name]
    return SimpleNamespace(
        configuration=configuration,
        loader=kube_config.KubeConfigLoader,
        merger=kube_config.KubeConfigMerger,
        load_incluster_config=incluster.load_incluster_config,
    )


async def find(configuration: Configuration, context: str | None) -> Renewal | None:
    """Fill ``configuration`` from KUBECONFIG, in-cluster, or ``~/.kube/config``; ``context`` needs a kubeconfig.

    Returns the ``Renewal`` to tell when credentials are refused, if there is one. Raises ConfigurationError, and what
    the library raises.
    """
    paths = os.environ.get("KUBECONFIG", "")
    token_file = SERVICE_ACCOUNT / "token"
    if not paths and context is None and os.environ.get("KUBERNETES_SERVICE_HOST") and token_file.is_file():
        library().load_incluster_config(
            client_configuration=configuration,
            try_refresh_token=False,
            token_filename=str(token_file),
            cert_filename=str(SERVICE_ACCOUNT / "ca.crt"),
        )
        configuration.refresh_api_key_hook = TokenFile(token_file)
        return None

    paths = paths or str(KUBECONFIG.expanduser())
    if not any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path):  # noqa: ASYNC240 - at the start
        raise ConfigurationError(
            f"no way to a Kubernetes API server: kubeconfig {paths} does not exist, and this is not a pod "
            "with a service account"
        )
    try:
        merged = library().merger(paths)
        loader = library().loader(config_dict=merged.config, config_base_path=None, active_context=context)
        await loader.load_and_set(configuration)
    except (AttributeError, TypeError) as error:
        # The library assumes that the YAML has the form of a kubeconfig.
        raise ConfigurationError(
            f"Kubernetes configuration unusable: kubeconfig {paths}: expected YAML with clusters, users, contexts and "
            "current-context"
        ) from error

    # The user of the active context says whether its token changes; relative paths start from the file that names it.
    name = loader.current_context["context"].get("user") if loader.current_context else None
    node = merged.config["users"].get_with_name(name, safe=True) if name and merged.config else None
    if node is None:
        return None
    user = node.value.get("user") or {}
    if "tokenFile" in user:
        folder = Path(node.path or "").resolve().parent  # noqa: ASYNC240 - at the start
        configuration.refresh_api_key_hook = TokenFile(folder / str(user["tokenFile"]))
    elif "exec" in user or "auth-provider" in user:
        configuration.refresh_api_key_hook = renewal = Renewal(loader)
        return renewal
    return None


class TokenFile:
    """A token in a file, read again when the file changes.

    The library would do this only for in-cluster tokens, once per minute, and would keep a trailing newline, which
    is no header. A stat per request costs microseconds, and it follows the symbolic links that a kubelet swaps.
    """

    def __init__(self, path: Path) -> None:
        """Read nothing yet."""
        self._path = path
        self._file_identity: tuple[int, int, int] | None = None

    def __call__(self, configuration: Configuration) -> None:
        """Put the current token into ``configuration``; if the file is unreadable or empty, the last token stays."""
        try:
            identity = _identity(self._path)
            if identity == self._file_identity:
                return
            token = self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._file_identity is not None:
                _log.warning("credentials_unreadable", file_path=str(self._path), error=type(error).__name__)
            self._file_identity = None
            return
        if token:
            configuration.api_key["BearerToken"] = f"Bearer {token}"
            self._file_identity = identity


class Renewal:
    """Credentials that expire: asks an exec plug-in or auth provider again when its token expires or is refused.

    The library does this only in a task of its own, which this program does not start.
    """

    def __init__(self, loader: KubeConfigLoader, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Count from now: the loader has just loaded. ``monotonic`` tells seconds."""
        self._loader = loader
        self._monotonic = monotonic
        self._looked_at = monotonic()
        self._refused = False

    def refused(self) -> None:
        """Note that the server did not accept the credentials."""
        self._refused = True

    async def __call__(self, configuration: Configuration) -> None:
        """Renew when due. A failure is logged, and the old credentials stay."""
        since_seconds = self._monotonic() - self._looked_at
        dated = hasattr(self._loader, "exec_plugin_expiry")  # exists once an exec plug-in gave an expiry
        expires = dated or self._loader.provider is not None
        if since_seconds < (REFUSED_SECONDS if self._refused else RENEWAL_SECONDS) or not (expires or self._refused):
            return
        self._looked_at = self._monotonic()
        if self._refused and dated:
            # By its expiry the token is still good, but the server refused it, so ask the plug-in again.
            del self._loader.exec_plugin_expiry
        self._refused = False
        try:
            await self._loader.load_and_set(configuration)
        except Exception as error:  # noqa: BLE001 - plug-ins and providers fail in their own ways; none may end a watch
            _log.warning("credentials_not_renewed", error=type(error).__name__)


class TlsContext:
    """The TLS context of the connection, into which changed files of CA and client certificate are loaded.

    New connections use them; open connections, such as watches, stay. After half a rotation (a certificate without its
    new key) the old pair stays loaded. A CA that was removed from its file stays trusted, since a context cannot drop
    one.
    """

    def __init__(self, configuration: Configuration) -> None:
        """Load the files as they are. Raises OSError or ssl.SSLError (a subclass)."""
        self._ca: str | None = configuration.ssl_ca_cert
        self._certificate: str | None = configuration.cert_file
        self._key: str | None = configuration.key_file
        self._verify: bool = configuration.verify_ssl
        self._files = [path for path in (self._ca, self._certificate, self._key) if path]
        self._file_identities = [_identity(Path(path)) for path in self._files]
        self._last_error = ""
        self.context = ssl.create_default_context(cafile=self._ca)
        if self._certificate:
            self.context.load_cert_chain(self._certificate, self._key, password=_no_password)
        if not self._verify:
            self.context.check_hostname = False
            self.context.verify_mode = ssl.CERT_NONE
        if configuration.disable_strict_ssl_verification:
            self.context.verify_flags &= ~ssl.VERIFY_X509_STRICT

    def renew(self) -> None:
        """Load the files if one has changed; files that cannot be used are logged once and tried again."""
        try:
            identities = [_identity(Path(path)) for path in self._files]
            if identities == self._file_identities:
                return
            # A failing load would leave half of a pair in a context, so try it with another context first.
            for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), self.context):
                if self._ca and self._verify:
                    context.load_verify_locations(self._ca)
                if self._certificate:
                    context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except OSError as error:
            reason = error.strerror or str(error)
            if reason != self._last_error:
                _log.warning("tls_files_unusable", files=self._files, reason=reason, in_force="the last good ones")
            self._last_error = reason
            return
        self._file_identities, self._last_error = identities, ""
        _log.info("tls_files_reloaded", files=self._files)


def _identity(path: Path) -> tuple[int, int, int]:
    """Return a value that changes when the file is written or replaced. Raises OSError."""
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _no_password() -> str:
    """Answer for an encrypted key: without this OpenSSL would ask on the terminal and block the process."""
    return ""

"""Which configuration the client uses, and its error when none works.

The tokens are tested in test_client_token_reload.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from wva.kube import client as client_module
from wva.kube import credentials
from wva.kube.errors import ConfigurationError, Unreachable

IN_CLUSTER = "https://10.96.0.1:443"


@pytest.fixture
def in_cluster(clean_environment: pytest.MonkeyPatch, tmp_path: Path, authority: Any) -> Path:
    """Create a service account and the environment of a pod."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("pod-token", encoding="utf-8")
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    clean_environment.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    clean_environment.setenv("KUBERNETES_SERVICE_PORT", "443")
    clean_environment.setattr(credentials, "SERVICE_ACCOUNT", folder)
    return folder


def home_kubeconfig(tmp_path: Path, source: Path) -> None:
    """Move a kubeconfig to the place in the home directory."""
    folder = tmp_path / "home" / ".kube"
    folder.mkdir()
    source.rename(folder / "config")


async def chosen(connect: Any, **options: Any) -> str:
    """Return the host of the configuration that the client uses."""
    async with connect(**options) as client:
        host: str = client.host
        return host


async def refusal(connect: Any, **options: Any) -> str:
    """Return the text of the ConfigurationError; it is one line."""
    with pytest.raises(ConfigurationError) as caught:
        await chosen(connect, **options)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.usefixtures("in_cluster")
async def test_kubeconfig_variable_comes_first(kubeconfig: Any, connect: Any) -> None:
    """KUBECONFIG has precedence, even in a pod."""
    kubeconfig("http://127.0.0.1:8001")
    assert await chosen(connect) == "http://127.0.0.1:8001"


@pytest.mark.usefixtures("in_cluster")
async def test_service_account_comes_before_the_home_directory(
    kubeconfig: Any, connect: Any, tmp_path: Path, clean_environment: pytest.MonkeyPatch
) -> None:
    """In a pod, the service account has precedence over ~/.kube/config."""
    home_kubeconfig(tmp_path, kubeconfig("http://127.0.0.1:8001"))
    clean_environment.delenv("KUBECONFIG")
    assert await chosen(connect) == IN_CLUSTER


@pytest.mark.usefixtures("in_cluster")
async def test_named_context_needs_a_kubeconfig(
    kubeconfig: Any, connect: Any, tmp_path: Path, clean_environment: pytest.MonkeyPatch
) -> None:
    """A service account has no contexts, so a named context selects the kubeconfig."""
    home_kubeconfig(tmp_path, kubeconfig("http://127.0.0.1:8001"))
    clean_environment.delenv("KUBECONFIG")
    assert await chosen(connect, context="test") == "http://127.0.0.1:8001"


async def test_home_directory_comes_last(
    kubeconfig: Any, connect: Any, tmp_path: Path, clean_environment: pytest.MonkeyPatch
) -> None:
    """Without KUBECONFIG and outside of a pod, ~/.kube/config is used."""
    home_kubeconfig(tmp_path, kubeconfig("http://127.0.0.1:8001"))
    clean_environment.delenv("KUBECONFIG")
    assert await chosen(connect) == "http://127.0.0.1:8001"


async def test_pod_without_token_falls_back_to_the_home_directory(
    in_cluster: Path, kubeconfig: Any, connect: Any, tmp_path: Path, clean_environment: pytest.MonkeyPatch
) -> None:
    """A pod without a mounted token uses ~/.kube/config."""
    (in_cluster / "token").unlink()
    home_kubeconfig(tmp_path, kubeconfig("http://127.0.0.1:8001"))
    clean_environment.delenv("KUBECONFIG")
    assert await chosen(connect) == "http://127.0.0.1:8001"


async def test_named_context_is_taken(kubeconfig: Any, connect: Any) -> None:
    """A context other than the current one can be named."""
    path = kubeconfig("http://127.0.0.1:8001")
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    config["clusters"].append({"name": "other", "cluster": {"server": "http://127.0.0.1:8002"}})
    config["contexts"].append({"name": "other", "context": {"cluster": "other"}})
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    assert await chosen(connect, context="other") == "http://127.0.0.1:8002"
    assert "nowhere" in await refusal(connect, context="nowhere")


async def test_nothing_configured(connect: Any, clean_environment: pytest.MonkeyPatch) -> None:
    """The error names the places where the client looked."""
    clean_environment.setattr(credentials, "SERVICE_ACCOUNT", Path("/nonexistent"))
    text = await refusal(connect)
    assert ".kube/config does not exist" in text
    assert "not a pod with a service account" in text


@pytest.mark.usefixtures("in_cluster")
async def test_missing_file_of_the_variable(connect: Any, clean_environment: pytest.MonkeyPatch) -> None:
    """A KUBECONFIG that points nowhere is an error, not a reason to use another cluster."""
    clean_environment.setenv("KUBECONFIG", "/nonexistent/config")
    assert "/nonexistent/config does not exist" in await refusal(connect)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not a mapping",
        "{",
        "[]",
        "apiVersion: v1\nkind: Config\n",
        "current-context: a\ncontexts: [{name: b}]\nclusters: []\nusers: []\n",
        "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: []\nusers: []\n",
    ],
)
async def test_broken_kubeconfig(connect: Any, kubeconfig: Any, text: str) -> None:
    """Every fault of the file gives one line and the same class of error."""
    kubeconfig("http://127.0.0.1:8001").write_text(text, encoding="utf-8")
    told = await refusal(connect)
    assert told.startswith("Kubernetes configuration unusable: ")
    assert "NoneType" not in told
    assert "object has no attribute" not in told


async def test_secrets_of_a_broken_kubeconfig_are_not_told(connect: Any, kubeconfig: Any) -> None:
    """The library quotes the entry that it does not understand. The error of the client leaves the quotation out."""
    path = kubeconfig("http://127.0.0.1:8001")
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    config["users"] = [{"name": "test", "token": "hunter2"}]
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    text = await refusal(connect)
    assert "hunter2" not in text
    assert "Expected key user" in text


@pytest.mark.parametrize(
    "cluster",
    [
        {"certificate-authority": "/nonexistent/ca.crt"},
        {"certificate-authority-data": "bm8gY2VydGlmaWNhdGU="},
        {"certificate-authority-data": "%"},
    ],
)
async def test_broken_certificates(connect: Any, kubeconfig: Any, cluster: dict[str, str]) -> None:
    """A CA that cannot be read is a ConfigurationError, too."""
    kubeconfig("https://127.0.0.1:8001", **cluster)
    assert (await refusal(connect)).startswith("Kubernetes configuration unusable: ")


async def test_missing_token_file(connect: Any, kubeconfig: Any) -> None:
    """A tokenFile must exist at the start."""
    kubeconfig("http://127.0.0.1:8001", user={"tokenFile": "missing"})
    assert "FileNotFoundError" in await refusal(connect)


async def test_failing_plug_in(connect: Any, kubeconfig: Any) -> None:
    """An exec plug-in that cannot run is an error at the start."""
    plug_in = {"command": "/nonexistent/plug-in", "apiVersion": "client.authentication.k8s.io/v1"}
    kubeconfig("http://127.0.0.1:8001", user={"exec": plug_in})
    assert "/nonexistent/plug-in" in await refusal(connect)


async def test_hanging_plug_in(connect: Any, clean_environment: pytest.MonkeyPatch) -> None:
    """The start fails after a time limit if the credentials do not come."""

    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    clean_environment.setattr(client_module, "find", hang)
    assert "TimeoutError" in await refusal(connect, timeout_seconds=0.05)


async def test_untrusted_server_is_unreachable(tls_server: Any, kubeconfig: Any, connect: Any) -> None:
    """A certificate that the CA did not sign is refused."""
    kubeconfig(tls_server.url)
    async with connect() as client:
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await client.request_json("GET", "/version")


async def test_name_in_the_certificate_can_be_given(
    tls_server: Any, kubeconfig: Any, connect: Any, authority: Any, tmp_path: Path
) -> None:
    """The client checks the certificate for the name in ``tls-server-name``."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    kubeconfig(tls_server.url, **{"certificate-authority": "ca.crt", "tls-server-name": "other.example"})
    async with connect() as client:
        with pytest.raises(Unreachable):
            await client.request_json("GET", "/version")


def test_library_is_imported_late() -> None:
    """Importing the client does not import the Kubernetes library, which would delay ``wva --help`` by 0.4 s."""
    code = "import sys, wva.kube.informer, wva.kube.client; print('kubernetes_asyncio' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - our own code
    assert run.stdout.strip() == "False"


def test_finding_credentials_imports_no_model_of_the_library() -> None:
    """The models of the library would take 38 MiB of memory. A normal import of the library still gets all of it."""
    code = """
import sys
from wva.kube.credentials import library
found = library()
print(sum(name.startswith("kubernetes_asyncio") for name in sys.modules))
from kubernetes_asyncio.client import ApiClient, CoreV1Api, V1Pod
from kubernetes_asyncio.config.kube_config import KubeConfigLoader
print(found.configuration().verify_ssl, found.loader.__name__, V1Pod().kind, KubeConfigLoader is not found.loader)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - our own code
    assert run.stdout.split() == ["0", "True", "KubeConfigLoader", "None", "True"]

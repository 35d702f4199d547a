"""Which token a command sends to the pod that a Lease names, what the pod has to prove first, and what comes back."""

from __future__ import annotations

import argparse
import asyncio
import os
import ssl

import aiohttp
import pytest
import trustme
import yaml
from aiohttp import web

from tests.cli.conftest import kubeconfig
from wva.cli import remote
from wva.command_error import CommandError
from wva.kube.client import FORWARD_PROTOCOL

MINE, MADE = "token-of-an-administrator", "token-for-this-controller"
NAMESPACE = "workload-variant-autoscaler-system"
SERVICE = "wva-metrics"
NAME = f"{SERVICE}.{NAMESPACE}.svc"
READER = ("--service-account", "models/reader")


class ForwardingApi:
    """An API server with a Lease, and a pod behind it, which serves a page over TLS and remembers what it is sent."""

    def __init__(self, authority):
        """Let the pod have a certificate for the Service; nobody knows the authority."""
        self.serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(NAME).configure_cert(self.serving)
        self.annotations = {}
        self.config_maps = {}
        self.services_status = 200
        self.made = {"status": {"token": MADE}}
        self.requests = []
        self.sent = []
        self.page = {"text": "page"}
        self.pod_port = 0

    async def answer(self, request):
        """Answer as the API server."""
        kind, name = request.path.split("/")[-2:]
        if kind == "leases":
            return web.json_response({"spec": {"holderIdentity": "pod-1_abc"}})
        if name == "token":
            self.requests.append((request.path, (await request.json())["spec"]))
            return web.json_response(self.made, status=201)
        if name == "services":
            assert request.query["labelSelector"] == "control-plane=controller-manager"
            metadata = {"name": SERVICE, "annotations": self.annotations}
            return web.json_response({"items": [{"metadata": metadata}]}, status=self.services_status)
        if kind == "configmaps" and name in self.config_maps:
            return web.json_response({"data": {"service-ca.crt": self.config_maps[name]}})
        if name == "portforward":
            return await self.forward(request)
        return web.json_response({"kind": "Status", "message": "not found"}, status=404)

    async def forward(self, request):
        """Carry bytes between the command and the pod, as the kubelet does."""
        socket = web.WebSocketResponse(protocols=(FORWARD_PROTOCOL,))
        await socket.prepare(request)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.pod_port)
        for channel in (b"\0", b"\1"):
            await socket.send_bytes(channel + int(request.query["ports"]).to_bytes(2, "little"))

        async def back():
            while data := await reader.read(65536):
                await socket.send_bytes(b"\0" + data)
            await socket.close()

        task = asyncio.create_task(back())
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                writer.write(message.data[1:])
        writer.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return socket

    async def serve_page(self, request):
        """Answer as the pod."""
        self.sent.append(request.headers.get("Authorization"))
        return web.Response(**self.page)


@pytest.fixture
def authority():
    """Return an authority of certificates."""
    return trustme.CA()


@pytest.fixture
async def cluster(authority, tmp_path, monkeypatch):
    """Return a cluster that the kubeconfig leads to; the kubeconfig has a token."""
    made, runners = ForwardingApi(authority), []
    for handler, context in ((made.answer, None), (made.serve_page, made.serving)):
        server = web.Application()
        server.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        runners.append(runner)
    made.pod_port = runners[1].addresses[0][1]
    path = kubeconfig(tmp_path, runners[0].addresses[0][1])
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["users"][0]["user"] = {"token": MINE}
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", str(path))
    made.kubeconfig = path
    yield made
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
def ca(authority, tmp_path):
    """Return a file with the authority."""
    path = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(path)
    return str(path)


async def ask(*words, path="/page"):
    """Return the page that a command gets with these flags."""
    parser = argparse.ArgumentParser()
    remote.add_arguments(parser)
    async with asyncio.timeout(30), remote.remote(parser.parse_args(words)) as controller:
        assert controller.token not in repr(controller)
        return await controller.get(path)


async def test_a_token_is_made_for_this_controller_alone(cluster):
    """The pod gets a token of the ServiceAccount for ten minutes and for the audience of the controller."""
    assert await ask(*READER) == b"page"
    path = "/api/v1/namespaces/models/serviceaccounts/reader/token"
    assert cluster.requests == [(path, {"audiences": [f"wva.llmd.ai/{NAMESPACE}"], "expirationSeconds": 600})]
    assert cluster.sent == [f"Bearer {MADE}"]


async def test_the_token_of_the_kubeconfig_is_not_sent_unasked(cluster, capsys):
    """Without a flag the pod is sent nothing, and the error names both ways."""
    with pytest.raises(CommandError, match=r"--service-account NAMESPACE/NAME.*--send-my-token"):
        await ask()
    assert cluster.sent == []
    assert await ask("--send-my-token") == b"page"
    assert cluster.sent == [f"Bearer {MINE}"]
    assert "pod-1, whose certificate is not checked" in capsys.readouterr().err


async def test_a_kubeconfig_without_a_token_has_none_to_send(cluster):
    """With a client certificate there is no token."""
    text = cluster.kubeconfig.read_text(encoding="utf-8").replace(f"token: {MINE}", "{}")
    cluster.kubeconfig.write_text(text, encoding="utf-8")
    with pytest.raises(CommandError, match=r"--send-my-token: the kubeconfig has .* --service-account"):
        await ask("--send-my-token")


@pytest.mark.parametrize("made", [{"status": {}}, {"status": {"token": 3}}, []])
async def test_an_answer_without_a_token_is_an_error(cluster, made):
    """The pod is not asked without a token."""
    cluster.made = made
    with pytest.raises(CommandError, match="made no token for the ServiceAccount models/reader"):
        await ask(*READER)
    assert cluster.sent == []


@pytest.mark.usefixtures("cluster")
async def test_the_pod_of_a_known_authority_is_asked(ca, capsys):
    """With the CA in a file the certificate is checked, for the name of the Service."""
    assert await ask(*READER, "--metrics-ca", ca) == b"page"
    assert await ask("--send-my-token", "--metrics-ca", ca) == b"page"
    assert await ask(*READER, "--metrics-ca", ca, "--metrics-server-name", NAME) == b"page"
    assert capsys.readouterr().err == ""


async def test_a_pod_that_does_not_prove_itself_is_sent_nothing(cluster, ca, tmp_path):
    """Neither a certificate of another authority nor one for another name is enough."""
    another = tmp_path / "another.crt"
    trustme.CA().cert_pem.write_to_path(another)
    for words in (("--metrics-ca", str(another)), ("--metrics-ca", ca, "--metrics-server-name", "else.example")):
        with pytest.raises(CommandError, match="does not prove that it is the controller, so no token was sent"):
            await ask(*READER, *words)
    assert cluster.sent == []


@pytest.mark.parametrize("name", ["openshift-service-ca.crt", "openshift-service-ca"])
async def test_on_openshift_the_service_ca_is_known(cluster, authority, name):
    """Where the Service has its certificate from the service CA, the pod must have it."""
    cluster.annotations = {"service.beta.openshift.io/serving-cert-secret-name": "tls"}
    cluster.config_maps = {name: authority.cert_pem.bytes().decode()}
    assert await ask(*READER) == b"page"
    cluster.config_maps = {name: trustme.CA().cert_pem.bytes().decode()}
    with pytest.raises(CommandError, match="expected a certificate of the service CA"):
        await ask(*READER)
    cluster.config_maps = {}
    with pytest.raises(CommandError, match=r"cannot be read from a ConfigMap.*--metrics-ca"):
        await ask(*READER)
    assert len(cluster.sent) == 1


async def test_a_ca_of_no_use_is_named(cluster, ca, tmp_path):
    """A flag that cannot be followed ends the command before anything is sent."""
    wrong, large, pipe = tmp_path / "wrong", tmp_path / "large", tmp_path / "pipe"
    os.mkfifo(pipe)
    wrong.write_text("no certificate", encoding="utf-8")
    large.write_bytes(b"x" * (1024**2 + 1))
    cases = [
        (("--metrics-ca", str(tmp_path / "nowhere")), r"--metrics-ca=.*nowhere: cannot be read: No such file"),
        (("--metrics-ca", str(wrong)), r"--metrics-ca=.*wrong: expected certificates \(PEM\)"),
        (("--metrics-ca", str(large)), "expected at most 1048576 bytes"),
        (("--metrics-ca", str(pipe)), r"--metrics-ca=.*pipe: cannot be read: it is not a file"),
        (("--metrics-server-name", NAME), "no CA is known to check it with"),
    ]
    for words, expected in cases:
        with pytest.raises(CommandError, match=expected):
            await ask(*READER, *words)
    cluster.services_status = 403
    with pytest.raises(CommandError, match="give the name with --metrics-server-name"):
        await ask(*READER, "--metrics-ca", ca)
    assert cluster.sent == []
    assert await ask(*READER) == b"page"


async def test_a_page_that_repeats_the_token_does_not_spread_it(cluster):
    """An error shows what the pod says, cut, without the token."""
    cluster.page = {"status": 401, "text": f"{'x' * 290} {MADE} is refused"}
    with pytest.raises(CommandError, match="401: x") as refused:
        await ask(*READER)
    assert "token-for" not in str(refused.value)
    assert "[token]" in str(refused.value)


async def test_a_redirect_is_not_followed(cluster):
    """The pod cannot send the command to another address."""
    cluster.page = {"status": 302, "headers": {"Location": "/elsewhere"}}
    with pytest.raises(CommandError, match="answers /page with 302"):
        await ask(*READER)
    assert len(cluster.sent) == 1


async def test_a_large_page_comes_whole(cluster):
    """A page is read to its end, however many pieces it comes in."""
    cluster.page = {"body": b"x" * 3_000_000}
    assert len(await ask(*READER)) == 3_000_000


async def test_a_page_without_an_end_is_an_error(cluster, monkeypatch):
    """What is read is bounded, and a page beyond the bound is not taken for a whole one."""
    monkeypatch.setattr(remote, "_MAX_BYTES", 200_000)
    cluster.page = {"body": b"x" * 200_001}
    with pytest.raises(CommandError, match="answers /page with more than 200000 bytes"):
        await ask(*READER)

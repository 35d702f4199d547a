"""Ways to call the command: in this process, or as a process without the environment of this machine."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from wva.cli import main

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class CommandOutcome:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def lines(self):
        """The lines on stderr that are meant for people, not log lines."""
        return [line for line in self.err.splitlines() if line.startswith("wva")]


@pytest.fixture
def wva(capsys):
    """Return a function that calls the command in this process."""

    def call(*words):
        try:
            status = main(list(words))
        except SystemExit as ended:
            status = ended.code
        captured = capsys.readouterr()
        return CommandOutcome(status, captured.out, captured.err)

    return call


@pytest.fixture
def log_as_before():
    """Restore the log after the test, because some commands silence it for their process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def environment(tmp_path):
    """Return the environment of a process that has no kubeconfig, no cluster and no proxy."""
    home = tmp_path / "home"
    home.mkdir()
    here = {name: os.environ[name] for name in ("PATH", "SSL_CERT_FILE")}
    return here | {"HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}


@pytest.fixture
def call(wva, environment, monkeypatch, log_as_before):  # noqa: ARG001 - pytest uses a fixture by naming it
    """Return a function that calls the command in this process, in the environment that its own process would have."""

    async def called(*words, **more):
        with monkeypatch.context() as patch:
            for name in os.environ:
                patch.delenv(name)
            for name, value in (environment | more).items():
                patch.setenv(name, value)
            return await asyncio.to_thread(wva, *words)

    return called


@pytest.fixture
async def start(environment):
    """Return a function that starts the command as a process; the fixture ends the processes that still run."""
    processes = []

    async def started(*words, **more):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "wva",
            *words,
            env=environment | more,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        processes.append(process)
        return process

    yield started
    for process in processes:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.fixture
def run(start):
    """Return a function that runs the command as a process to its end."""

    async def ran(*words, **more):
        process = await start(*words, **more)
        async with asyncio.timeout(60):
            out, err = await process.communicate()
        return CommandOutcome(process.returncode, out.decode(), err.decode())

    return ran


def closed_port():
    """Return a port of loopback on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def free_port():
    """Return a port to listen on."""
    return closed_port()


@pytest.fixture
def closed_cluster(tmp_path):
    """Return a kubeconfig for a port on which no process listens."""
    return kubeconfig(tmp_path, closed_port())


@pytest.fixture
async def cluster_without_permission(tmp_path):
    """Return a kubeconfig for a server that answers 403 to every request."""

    async def refuse(_):
        status = {"kind": "Status", "reason": "Forbidden", "message": "no", "code": 403}
        return web.json_response(status, status=403)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    async with TestServer(app, host="127.0.0.1") as server:
        yield kubeconfig(tmp_path, server.port)


def kubeconfig(folder, port):
    """Write a kubeconfig for a port of loopback and return its path."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "a", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path

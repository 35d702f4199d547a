"""Fixtures of the end-to-end tests.

``control_plane`` is one real control plane for all workers of a run (or the existing cluster of
``WVA_E2E_KUBECONFIG``), ``own_control_plane`` the same for tests that restart its servers, ``namespace`` a fresh one
for each test, ``launch`` starts a program, ``scene`` is a namespace in which a controller can be started.

Environment: ``WVA_E2E_KUBECONFIG`` with ``WVA_E2E_PROMETHEUS_URL`` (an existing cluster), ``WVA_E2E_DIRECTORY`` (join
the control plane of ``python -m e2e.controlplane``), ``WVA_E2E_LOGS`` (where logs go after a failure),
``WVA_E2E_AUDIT`` (where the API servers' audit logs go), ``WVA_E2E_CACHE`` and ``WVA_E2E_BIN`` (where the binaries
are), ``WVA_E2E_UNAVAILABLE=skip`` (skip what needs a server or tool that is not there, and say how much that is),
``WVA_E2E_LEADER_KILLS`` (how often ``test_direct_leadership`` kills the leader).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import re
import tempfile
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from e2e.controlplane.audit import refused
from e2e.controlplane.build import NotBuiltError, pinned_versions, skips_unavailable
from e2e.controlplane.cluster import ClusterAccess, ControlPlane, ExistingCluster
from e2e.controlplane.processes import ServerProcess
from e2e.controlplane.session import Session
from e2e.history import recording
from e2e.scene import STOP_GRACE_SECONDS, Scene

_log = logging.getLogger(__name__)
_SESSION = pytest.StashKey[Session]()
_PLANE = pytest.StashKey[ControlPlane]()
_DISRUPTIVE_TIMEOUT_SECONDS = 600  # it may have to wait for the tests of the other workers
_NOT_RUN = "cannot run here"


class Launch(Protocol):
    """Starts a program for the length of a test; ``name`` is completed to be unique."""

    def __call__(
        self, name: str, argv: Sequence[str | Path], *, environment: Mapping[str, str] | None = None
    ) -> ServerProcess:
        """Start the program and return it; it is stopped when the test ends."""
        ...


def pytest_configure() -> None:
    """Unset the event loop: looptime asks for one even before sync tests, which would create a loop that leaks."""
    asyncio.set_event_loop(None)


def pytest_report_header() -> str:
    """Name the cluster on which the tests run."""
    if existing := os.environ.get("WVA_E2E_KUBECONFIG"):
        return f"e2e: existing cluster of {existing}"
    versions = ", ".join(f"{name} {version}" for name, version in pinned_versions().items())
    return f"e2e: own control plane of {versions}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put disruptive tests last, after any shuffling, and let them wait for their turn."""
    items.sort(key=lambda item: item.get_closest_marker("disruptive") is not None)
    for item in items:
        if item.get_closest_marker("disruptive") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_DISRUPTIVE_TIMEOUT_SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Skip a test whose servers cannot be built, if ``WVA_E2E_UNAVAILABLE`` says so."""
    with _unavailable_skipped():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Skip a test whose tools cannot be built, if ``WVA_E2E_UNAVAILABLE`` says so."""
    with _unavailable_skipped():
        return (yield)


@contextlib.contextmanager
def _unavailable_skipped() -> Iterator[None]:
    try:
        yield
    except NotBuiltError as error:
        if not skips_unavailable():
            raise
        pytest.skip(f"{_NOT_RUN}: {error}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report how many tests did not run because a server or tool cannot be built."""
    skipped = terminalreporter.stats.get("skipped", ())
    count = sum(_NOT_RUN in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.section("SERVERS OR TOOLS CANNOT BE HAD", sep="!")
        terminalreporter.line(f"{count} TESTS DID NOT RUN, because a server or tool that they need cannot be had")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the servers' logs when a test fails and put their ends into its report."""
    report = yield
    session = item.config.stash.get(_SESSION, None)
    if report.failed and session is not None:
        session.mark_failed()
        plane = item.config.stash.get(_PLANE, None)
        tails = plane.log_tails() if plane else ""
        report.sections.append((f"control plane, logs kept in {session.directory / 'logs'}", tails))
    return report


@pytest.fixture(scope="session")
def control_plane(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterAccess]:
    """Give the cluster of this run, with its real servers' versions in the log."""
    if existing := os.environ.get("WVA_E2E_KUBECONFIG"):
        cluster = ExistingCluster(
            tmp_path_factory.mktemp("cluster"),
            kubeconfig=Path(existing),
            prometheus_url=os.environ["WVA_E2E_PROMETHEUS_URL"],
        )
        _log.info("existing cluster: %s", cluster.versions())
        yield cluster
        return
    session = Session(_rendezvous())
    pytestconfig.stash[_SESSION] = session
    try:
        plane = session.join()
        pytestconfig.stash[_PLANE] = plane
        _log.info("control plane in %s: %s", plane.directory, plane.versions())
        yield plane
    finally:
        session.leave()


@pytest.fixture
def own_control_plane(control_plane: ClusterAccess) -> ControlPlane:
    """Give the control plane as one whose servers may be stopped, restarted and configured."""
    if not isinstance(control_plane, ControlPlane):
        pytest.skip("needs servers of its own: this run uses the existing cluster of WVA_E2E_KUBECONFIG")
    return control_plane


@pytest.fixture(autouse=True)
def _turn(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let tests run side by side, but a disruptive one alone, across all workers of the run."""
    if "control_plane" not in request.fixturenames:
        yield
        return
    cluster: ClusterAccess = request.getfixturevalue("control_plane")
    with (cluster.directory / "turn.lock").open("w") as file:
        alone = request.node.get_closest_marker("disruptive") is not None
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@pytest.fixture
def namespace(control_plane: ClusterAccess, request: pytest.FixtureRequest) -> Iterator[str]:
    """Give a fresh namespace. Its deletion begins when the test ends, and the fixture does not wait for its end."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))[:40].strip("-")
    name = f"{words}-{uuid.uuid4().hex[:6]}"
    control_plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    control_plane.api.delete("Namespace", name)


@pytest.fixture
def launch(control_plane: ClusterAccess) -> Iterator[Launch]:
    """Start programs that are stopped, youngest first, when the test ends."""
    started: list[ServerProcess] = []

    def start(name: str, argv: Sequence[str | Path], *, environment: Mapping[str, str] | None = None) -> ServerProcess:
        process = ServerProcess(
            f"{name}-{uuid.uuid4().hex[:6]}", directory=control_plane.directory, argv=argv, environment=environment
        )
        process.start()
        started.append(process)
        return process

    yield start
    for process in reversed(started):
        process.stop(grace_seconds=STOP_GRACE_SECONDS)


@pytest.fixture
def scene(
    own_control_plane: ControlPlane, namespace: str, launch: Launch, request: pytest.FixtureRequest
) -> Iterator[Scene]:
    """Give a namespace with the controller's identity and configuration, and record what controllers publish."""
    with contextlib.ExitStack() as stack:
        history = stack.enter_context(recording())
        scene = Scene(own_control_plane, namespace, launch=launch, history=history, stack=stack)
        scene.install()
        yield scene
        if request.node.get_closest_marker("disruptive") is None:  # a restarting API server refuses for a moment
            scene.assert_allowed()
    assert not refused([own_control_plane.layout.audit_log.parent], namespace=namespace)


def _rendezvous() -> Path:
    if joined := os.environ.get("WVA_E2E_DIRECTORY"):
        return Path(joined)
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    return Path(tempfile.gettempdir()) / f"wva-e2e-{run}"

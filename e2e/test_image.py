"""Tests of the image without a container engine.

They make its files as the Containerfile does, and confine the process.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from e2e import confined, manifests
from e2e.controller import Addresses, ControllerProcess
from e2e.controlplane.ports import free_ports
from e2e.load import PodReport
from e2e.manifests import SATURATION_CONFIG_MAP, ManifestedVariant
from e2e.scene import Launch, Scene
from wva import __version__

ROOT = Path(__file__).resolve().parent.parent
CHAT = ManifestedVariant(name="chat", cost=5, accelerator="L40S")
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
AUTHORITY = "/etc/ssl/certs/prometheus-ca.crt"
ARGUMENTS = ("--leader-elect=true", "--metrics-secure=true", "-v=2")
PROBE = """
import os
for path in ("/probe", "/opt/wva/lib/probe", "/opt/wva/bytecode/probe", "/home/nonroot/probe", "/tmp/probe"):
    try:
        open(path, "w").close()
    except OSError as error:
        print(path, type(error).__name__, error.strerror, sep="|")
    else:
        print(path, "written", sep="|")
print(os.getuid(), open("/proc/self/status").read().split("CapEff:")[1].split()[0], sep="|")
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Assemble the image's files for this machine's interpreter; some 30 s."""
    directory = tmp_path_factory.mktemp("image") / "root"
    interpreter = Path(sys.executable).resolve()
    command = [sys.executable, "-m", "image.assemble", str(directory), f"--interpreter={interpreter}"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=400)
    return directory


def inside(image: Path, *program: str, options: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a program in the image's files, read-only, as their user."""
    return [sys.executable, str(Path(confined.__file__)), "--root", str(image), *options, "--", *program]


def output(image: Path, *program: str) -> str:
    """Return what a program in the image writes; it must succeed."""
    done = subprocess.run(inside(image, *program), capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(600)
def test_the_controller_scales_from_the_image(scene: Scene, launch: Launch, image: Path, tmp_path: Path):
    """Started as the original's manifests start it, the controller leads, measures, publishes and stops."""
    scene.configure(SATURATION_CONFIG_MAP, {"default": "queueLengthThreshold: 5"})
    scene.deploy(CHAT)
    scene.wait_ready(CHAT)
    metrics = scene.fixed_metrics()
    metrics.set(CHAT.name, PodReport(kv_usage=0.9, waiting=20))
    scene.declare(CHAT)

    controller = start(scene, launch, image, tmp_path)
    scene.wait_measured(CHAT)
    scene.wait(lambda: (scene.desired(CHAT.name) or 0) > 1, timeout_seconds=60, what="a number that grows")
    scene.wait(
        lambda: scene.condition(CHAT.name, "OptimizationReady").status == "True", timeout_seconds=30, what="status"
    )
    assert controller.readiness()[0] == 200
    log = controller.log(10_000)
    assert "Read-only file system" not in log
    assert "Traceback" not in log
    controller.process.stop(grace_seconds=20)
    assert "SIGKILL" not in controller.log()


def start(scene: Scene, launch: Launch, image: Path, folder: Path) -> ControllerProcess:
    """Start the image's entry point as the Deployment does: flags, environment, ServiceAccount and CA in files."""
    ports = free_ports(("metrics", "probes"))
    addresses = Addresses(f"127.0.0.1:{ports['metrics']}", f"127.0.0.1:{ports['probes']}")
    server = scene.plane.endpoint.server.removeprefix("https://")
    account = folder / "serviceaccount"
    account.mkdir()
    token = scene.plane.service_account_token(scene.namespace, manifests.SERVICE_ACCOUNT)
    (account / "token").write_text(token, encoding="utf-8")
    (account / "ca.crt").write_bytes(scene.plane.layout.authority.read_bytes())
    (folder / "prometheus-ca.crt").write_bytes(scene.plane.layout.authority.read_bytes())
    environment = {
        "KUBERNETES_SERVICE_HOST": server.rpartition(":")[0],
        "KUBERNETES_SERVICE_PORT": server.rpartition(":")[2],
        "POD_NAMESPACE": scene.namespace,
        "PROMETHEUS_BASE_URL": scene.plane.prometheus_api.url,
        "PROMETHEUS_CA_CERT_PATH": AUTHORITY,
        **addresses.environment(),
    }
    options = [f"--env={name}={value}" for name, value in environment.items()]
    options += [f"--bind={account}:{ACCOUNT}", f"--bind={folder / 'prometheus-ca.crt'}:{AUTHORITY}"]
    argv = inside(image, "/manager", f"--watch-namespace={scene.namespace}", *ARGUMENTS, options=options)
    scraper = scene.plane.service_account_token(scene.namespace, manifests.SCRAPER)
    controller = ControllerProcess(launch("image", argv), addresses, token=scraper)
    scene.keep_controller(controller)
    controller.wait_serving(timeout_seconds=60)
    return controller


def test_nothing_but_tmp_can_be_written_and_nobody_is_root(image: Path):
    """The confinement works: the program can write to ``/tmp`` alone, and its user has no capability."""
    interpreter = str(Path(sys.executable).resolve())
    *paths, user = output(image, interpreter, "-ISBc", PROBE).splitlines()
    said = {path: what for path, _, what in (line.partition("|") for line in paths)}
    assert said.pop("/tmp/probe") == "written"  # noqa: S108 - the path is the point
    assert len(said) == 4
    assert all(what.endswith("Read-only file system") for what in said.values()), said
    assert user == f"{confined.USER}|{'0' * 16}"


@pytest.mark.parametrize("command", ["/manager", "/usr/local/bin/wva"])
def test_both_names_answer(image: Path, command: str):
    """The image has the controller at the original's path, and as ``wva`` for an operator who looks into a pod."""
    assert output(image, command, "version") == f"wva {__version__}\n"


@pytest.mark.parametrize("program", ["/bin/sh", "/usr/bin/env", "/usr/bin/apt-get"])
def test_no_shell_and_no_package_manager(image: Path, program: str):
    """An intruder can start neither, since the image has no such file."""
    done = subprocess.run(inside(image, program), capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stderr) == (confined.NOT_FOUND, f"{program}: No such file or directory\n")


def test_nothing_in_the_files_installs_anything(image: Path):
    """The image has no pip, no build backend and no test library."""
    folders = {path.name.lower() for path in (image / "opt/wva/lib").iterdir()}
    unwanted = {"pip", "setuptools", "wheel", "hatchling", "cyclonedx", "pytest", "mypy", "rich", "promql_parser"}
    assert not folders & (unwanted | {"bin", "share", "include"})
    assert "wva" in folders
    assert not [path for path in image.rglob("*") if path.name in {"sh", "bash", "apt", "dpkg"}]


def test_every_module_has_its_bytecode(image: Path):
    """The program and the libraries have optimised bytecode under one prefix, and none beside the sources."""
    assert not list(image.rglob("__pycache__"))
    tag = f"{sys.implementation.cache_tag}.opt-1.pyc"
    compiled = {path.relative_to(image / "opt/wva/bytecode/opt/wva/lib") for path in image.rglob(f"*.{tag}")
                if path.is_relative_to(image / "opt/wva/bytecode/opt/wva/lib")}  # fmt: skip
    library = image / "opt/wva/lib"
    sources = {path.relative_to(library).with_suffix(f".{tag}") for path in (library / "wva").rglob("*.py")}
    assert Path(f"wva/cli/run.{tag}") in sources
    assert sources - compiled == set()


def test_the_interpreter_reads_that_bytecode(image: Path):
    """The start compiles no module of the program or of the standard library."""
    probe = (image / "manager").read_text(encoding="utf-8").partition("from wva.cli")[0].partition("\n")[2]
    probe += (
        "import os, wva.cli.run\n"
        "specs = {name: getattr(module, '__spec__', None) for name, module in sys.modules.items()}\n"
        "found = {name: getattr(spec, 'cached', None) or '' for name, spec in specs.items()}\n"
        "print([name for name, path in found.items() if path and not os.path.exists(path)])\n"
        "print(found['wva.cli.run'], found['asyncio.events'])\n"
    )
    missing, cached = output(image, str(Path(sys.executable).resolve()), "-ISBOc", probe).splitlines()
    early = {"encodings", "encodings.aliases", "encodings.utf_8"}  # imported before the launcher sets the prefix
    assert set(ast.literal_eval(missing)) <= early
    assert cached.startswith("/opt/wva/bytecode/opt/wva/lib/wva/cli/run.")
    assert " /opt/wva/bytecode/" in cached


def test_the_files_belong_to_everybody_and_nobody_may_change_them(image: Path):
    """All users can read the files, since OpenShift chooses the user id. Only the owner can write them."""
    for path in image.rglob("*"):
        mode = path.lstat().st_mode & 0o7777
        assert path.is_symlink() or mode == (0o755 if path.is_dir() or mode & 0o100 else 0o644), path


def test_the_bill_of_materials_says_what_is_installed(image: Path):
    """The bill lists each distribution with version, package URL and licence. The program is the root."""
    bill = json.loads((image / "opt/wva/sbom.cdx.json").read_text(encoding="utf-8"))
    installed = {path.name.removesuffix(".dist-info") for path in (image / "opt/wva/lib").glob("*.dist-info")}
    listed = {f"{item['name']}-{item['version']}" for item in [*bill["components"], bill["metadata"]["component"]]}
    assert {normal(name) for name in listed} == {normal(name) for name in installed}
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/wva@{__version__}"
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert not [item["name"] for item in bill["components"] if not item.get("licenses")]
    graph = {entry["ref"]: entry.get("dependsOn", []) for entry in bill["dependencies"]}
    assert any(ref.startswith("aiohttp==") for ref in graph[f"wva=={__version__}"])


def normal(name: str) -> str:
    """Return a distribution's folder name in one spelling."""
    return name.lower().replace("_", "-").replace(".", "-")

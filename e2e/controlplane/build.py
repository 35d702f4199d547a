"""Build servers and tools from pinned Go modules: ``python -m e2e.controlplane.build [tools]``.

In go ``modules/<tool>/{go.mod,go.sum}``, out come binaries in a cache outside the checkout::

    ${WVA_E2E_CACHE:-${XDG_CACHE_HOME:-~/.cache}}/wva-controlplane/<hash of go.mod, go.sum, flags>/NAME

The hash is the cache's key, so a changed pin or flag builds anew and an old checkout finds its old binaries. A file
appears under its final name only when it is complete, and a lock per module keeps two runs from doing the same work.
Each tool is a module of its own because their dependencies contradict each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MODULES = Path(__file__).parent / "modules"
_STRIP = "-s -w"
_BUILD_TIMEOUT_SECONDS = 1800
_VERSION_ARGUMENTS = {"helm": ("version", "--short"), "kubectl": ("version", "--client"), "kubeconform": ("-v",)}


class BuildError(Exception):
    """A server could not be built; the text says which, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One Go module and what is built from it. The version is the one its go.mod requires of ``path``.

    Two of them may share one go.mod (``origin``): what is added to the one does not make the other build anew.
    """

    name: str
    path: str
    packages: Mapping[str, str]
    stamp: str = ""  # linker flag by which the binary knows its version; {release} is the version without the v
    origin: str = ""  # the folder of go.mod and go.sum where it is not ``name``
    release: str = ""  # the product's version where it differs from the module's
    folders: Mapping[str, str] = field(default_factory=dict)  # YAML and JSON copied beside the binaries: name -> folder

    @property
    def source(self) -> Path:
        """The folder with go.mod and go.sum."""
        return MODULES / (self.origin or self.name)

    @property
    def version(self) -> str:
        """The product's version, for example ``1.34.4``."""
        if self.release:
            return self.release
        text = (self.source / "go.mod").read_text(encoding="utf-8")
        found = re.search(rf"^\s*{re.escape(self.path)} v(\S+)", text, re.MULTILINE)
        if found is None:
            raise BuildError(f"{self.source / 'go.mod'} does not require {self.path}")
        return found[1]

    @property
    def linker_flags(self) -> str:
        """The value of ``-ldflags``: no symbols, and the version where the product has a place for it."""
        return f"{_STRIP} {self.stamp.format(release=self.version)}".strip()

    @property
    def directory(self) -> Path:
        """Where this module's binaries lie, whether or not they are built yet."""
        digest = hashlib.sha256()
        for part in ("go.mod", "go.sum"):
            digest.update((self.source / part).read_bytes())
        digest.update(f"{self.linker_flags}|{sorted(self.packages.items())}|{sorted(self.folders.items())}".encode())
        return cache_directory() / digest.hexdigest()[:16]

    def binary(self, name: str) -> Path:
        """Return the path of one binary."""
        return self.directory / name

    @property
    def missing(self) -> list[str]:
        """The binaries and folders that are not in the cache."""
        return [name for name in (*self.packages, *self.folders) if not (self.directory / name).exists()]


ETCD = Module(name="etcd", path="go.etcd.io/etcd/server/v3", packages={"etcd": "go.etcd.io/etcd/server/v3"})
KUBERNETES = Module(
    name="kubernetes",
    path="k8s.io/kubernetes",
    packages={
        name: f"k8s.io/kubernetes/cmd/{name}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    },
    stamp="-X k8s.io/component-base/version.gitVersion=v{release}",
)
PROMETHEUS = Module(
    name="prometheus",
    path="github.com/prometheus/prometheus",
    packages={"prometheus": "github.com/prometheus/prometheus/cmd/prometheus"},
    stamp="-X github.com/prometheus/common/version.Version={release}",
    release="3.8.0",  # the Go module counts v0.308.0 for it
)
KEDA = Module(
    name="keda",
    path="github.com/kedacore/keda/v2",
    packages={
        "keda-operator": "github.com/kedacore/keda/v2/cmd/operator",
        "keda-adapter": "github.com/kedacore/keda/v2/cmd/adapter",
    },
    stamp="-X github.com/kedacore/keda/v2/version.Version={release}",
    folders={"crds": "config/crd/bases"},
)
KUBECTL = Module(
    name="kubectl",
    origin=KUBERNETES.name,
    path=KUBERNETES.path,
    packages={"kubectl": "k8s.io/kubernetes/cmd/kubectl"},
    stamp=KUBERNETES.stamp,
)
PROMTOOL = Module(
    name="promtool",
    origin=PROMETHEUS.name,
    path=PROMETHEUS.path,
    packages={"promtool": "github.com/prometheus/prometheus/cmd/promtool"},
    stamp=PROMETHEUS.stamp,
    release=PROMETHEUS.release,
)
HELM = Module(
    name="helm",
    path="helm.sh/helm/v3",
    packages={"helm": "helm.sh/helm/v3/cmd/helm"},
    stamp="-X helm.sh/helm/v3/internal/version.version=v{release}",
)
KUBECONFORM = Module(
    name="kubeconform",
    path="github.com/yannh/kubeconform",
    packages={"kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform"},
    stamp="-X main.version={release}",
)
# What manifests are checked against: files of the modules, nothing is compiled.
KUBERNETES_API = Module(
    name="kubernetes-api",
    origin=KUBERNETES.name,
    path=KUBERNETES.path,
    packages={},
    folders={"openapi": "api/openapi-spec"},
)
KEDA_API = Module(name="keda-api", origin=KEDA.name, path=KEDA.path, packages={}, folders=KEDA.folders)
PROMETHEUS_OPERATOR = Module(
    name="prometheus-operator",
    path="github.com/prometheus-operator/prometheus-operator",
    packages={},
    folders={"crds": "example/prometheus-operator-crd"},
)
SERVERS = (ETCD, KUBERNETES, PROMETHEUS, KEDA)
TOOLS = (HELM, KUBECTL, KUBECONFORM, PROMTOOL)
SCHEMAS = (KUBERNETES_API, KEDA_API, PROMETHEUS_OPERATOR)
ALL = (*SERVERS, *TOOLS, *SCHEMAS)


def cache_directory() -> Path:
    """Return the root of the cache: ``WVA_E2E_CACHE``, else the user's cache directory."""
    own = os.environ.get("WVA_E2E_CACHE")
    base = own or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "wva-controlplane"


def pinned_versions() -> dict[str, str]:
    """Return the version of each server as the go.mod files pin them, without building anything."""
    return {module.name: module.version for module in SERVERS}


def build(module: Module) -> None:
    """Build what is missing of ``module``; returns at once when everything is there."""
    if not module.missing:
        return
    with _locked(module):
        for name in module.missing:  # looked up again: another run may have built it while this one waited
            started = time.monotonic()
            print(f"building {name} {module.version} ...", flush=True)
            if name in module.packages:
                _compile(module, name)
            else:
                _copy_folder(module, name)
            print(f"built {name} in {time.monotonic() - started:.0f} s", flush=True)


def build_all(modules: Iterable[Module] = ALL) -> None:
    """Build what is not in the cache yet."""
    for module in modules:
        build(module)


def _compile(module: Module, name: str) -> None:
    target = module.binary(name)
    unfinished = target.with_name(f".{name}.{os.getpid()}")
    try:
        _go(
            module,
            "build", "-buildvcs=false", "-trimpath", "-ldflags", module.linker_flags,
            "-o", str(unfinished), module.packages[name],
        )  # fmt: skip
        unfinished.rename(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _copy_folder(module: Module, name: str) -> None:
    target = module.directory / name
    unfinished = target.with_name(f".{name}.{os.getpid()}")
    _go(module, "mod", "download", module.path)
    origin = Path(_go(module, "list", "-m", "-f", "{{.Dir}}", module.path).strip()) / module.folders[name]
    try:
        unfinished.mkdir()
        for file in sorted((*origin.glob("*.yaml"), *origin.glob("*.json"))):
            shutil.copyfile(file, unfinished / file.name)  # contents only: files of the module cache are read-only
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _go(module: Module, *arguments: str) -> str:
    go = shutil.which("go")
    if go is None:
        raise BuildError(
            f"the Go toolchain is needed to build {module.name} and no 'go' is on the PATH; install Go 1.25 or newer, "
            "or point WVA_E2E_KUBECONFIG and WVA_E2E_PROMETHEUS_URL at an existing cluster"
        )
    environment = {**os.environ, "CGO_ENABLED": "0"}
    process = subprocess.run(
        [go, *arguments],
        cwd=module.source,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_BUILD_TIMEOUT_SECONDS,
    )
    if process.returncode != 0:
        raise BuildError(f"go {arguments[0]} failed for {module.name} in {module.source}:\n{process.stderr.strip()}")
    return process.stdout


@contextlib.contextmanager
def _locked(module: Module) -> Iterator[None]:
    module.directory.mkdir(parents=True, exist_ok=True)
    with (module.directory / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def reported_version(module: Module, name: str) -> str:
    """Ask the binary for its version; KEDA's binaries cannot tell, so there it is the pinned one."""
    if module is KEDA:
        return f"{module.version} (pinned)"
    ask = _VERSION_ARGUMENTS.get(module.name, ("--version",))
    output = subprocess.run([module.binary(name), *ask], capture_output=True, text=True, check=True, timeout=30).stdout
    found = re.search(r"v?(\d+\.\d+\.\d+\S*)", output)
    return found[1] if found else output.strip()


def main(arguments: Sequence[str] = ()) -> int:
    """Build all, or with ``tools`` only these and the schemas; then print each binary's version and where it is."""
    modules = (*TOOLS, *SCHEMAS) if "tools" in arguments else ALL
    try:
        build_all(modules)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    for module in modules:
        for name in module.packages:
            print(f"{name:24} {reported_version(module, name):18} {module.binary(name)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

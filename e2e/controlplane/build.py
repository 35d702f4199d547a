"""Build servers and tools from pinned Go modules: ``python -m e2e.controlplane.build [PART ...]``.

In go ``modules/<tool>/{go.mod,go.sum}``, out come binaries in a cache outside the checkout::

    ${WVA_E2E_CACHE:-${XDG_CACHE_HOME:-~/.cache}}/wva-controlplane/<hash of go.mod, go.sum, flags>/NAME

The hash is the cache's key, so a changed pin or flag builds anew and an old checkout finds its old binaries. With
``WVA_E2E_BIN=DIR`` the binaries lie in DIR instead: those that are there are used as they are, of whatever version,
and ``build`` adds the missing ones. A file appears under its final name only when it is complete, and a lock per
module keeps two runs from doing the same work. Each tool is a module of its own because their dependencies contradict
each other.

Building has two stages, because they fail for different reasons. *Fetching* asks the module registry; what the
registry refuses is no defect of this repository, and nothing here can mend it. *Compiling* needs no network. The exit
code tells them apart: 3 when a module cannot be had, 1 when something does not compile. With
``WVA_E2E_UNAVAILABLE=skip`` a module that cannot be had is reported in the same words, but the exit code is 0, and
the tests that need it are skipped and counted (``e2e/conftest.py``).
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

MODULES = Path(__file__).parent / "modules"
_STRIP = "-s -w"
_FETCH_TIMEOUT_SECONDS = 900
_BUILD_TIMEOUT_SECONDS = 3600
_AT_ONCE = 2  # modules: while one waits for the registry or for its linker, the other one compiles
_REFUSED_EXIT = 3
# What go says of a module that the registry does not give: "PATH@VERSION: reading URL: 403 Forbidden", for example.
_REFUSAL = re.compile(r"(?P<module>[\w.~/-]+)@(?P<version>v[\w.+-]+): (?P<word>(?:.+)(?:\n\t.+)*)")
_OURS = (
    "missing go.sum entry",
    "checksum mismatch",
    "updates to go.mod needed",
)  # faults of the pins, not of a registry
_VERSION_ARGUMENTS = {
    "helm": ("version", "--short"),
    "kubectl": ("version", "--client"),
    "kustomize-oldest": ("version",),
    "kustomize-newest": ("version",),
}


class BuildError(Exception):
    """A server or tool could not be built, or is not there; the text says which, and what to do."""


class UnavailableError(BuildError):
    """The module registry does not give a module; the text names module, version and the registry's word."""


class TooSlowError(BuildError):
    """A step took longer than it may; the text says which."""


class NotBuiltError(BuildError):
    """A binary or folder that was asked for has not been built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One Go module and what is built from it. The version is the one its go.mod requires of ``path``.

    Two modules may share one go.mod (``origin``). A new binary of one of them does not make the other build anew.
    """

    name: str
    path: str
    packages: Mapping[str, str]
    stamp: str = ""  # linker flag by which the binary knows its version; {release} is the version without the v
    origin: str = ""  # the folder of go.mod and go.sum where it is not ``name``
    release: str = ""  # the product's version where it differs from the module's
    folders: Mapping[str, str] = field(default_factory=dict)  # of YAML, copied beside the binaries: name -> folder
    generator: str = ""  # a package that makes the YAML of ``folders`` from Go types, where it is not to be copied

    @property
    def source(self) -> Path:
        """Return the folder with go.mod and go.sum."""
        return MODULES / (self.origin or self.name)

    @property
    def version(self) -> str:
        """Return the product's version, for example ``1.34.4``."""
        if self.release:
            return self.release
        text = (self.source / "go.mod").read_text(encoding="utf-8")
        found = re.search(rf"^(?:require)?\s*{re.escape(self.path)} v(\S+)", text, re.MULTILINE)
        if found is None:
            raise BuildError(f"{self.source / 'go.mod'} does not require {self.path}")
        return found[1]

    @property
    def linker_flags(self) -> str:
        """The value of ``-ldflags``: no symbols, and the version where the product has a place for it."""
        return f"{_STRIP} {self.stamp.format(release=self.version)}".strip()

    @property
    def directory(self) -> Path:
        """Return the folder of this module's binaries."""
        if own := own_binaries():
            return own
        digest = hashlib.sha256()
        for part in ("go.mod", "go.sum"):
            digest.update((self.source / part).read_bytes())
        digest.update(f"{self.linker_flags}|{sorted(self.packages.items())}|{sorted(self.folders.items())}".encode())
        return cache_directory() / digest.hexdigest()[:16]

    def place(self, name: str) -> Path:
        """Return where a binary or folder belongs, whether or not it is there."""
        if name in self.folders and own_binaries():
            return self.directory / f"{self.name}-{name}"  # the folders of several modules have the same name
        return self.directory / name

    def binary(self, name: str) -> Path:
        """Return the path of a binary or folder. NotBuiltError when it is not there."""
        path = self.place(name)
        if not path.exists():
            part = next((part for part, modules in PARTS.items() if self in modules), "servers")
            what = name if name in self.packages else f"{name} of {self.name}"
            raise NotBuiltError(f"not built yet: {what}; run: python -m e2e.controlplane.build {part}")
        return path

    def needs(self, name: str) -> list[str]:
        """Return the Go packages that make a binary or folder; none where files are only copied."""
        if name in self.packages:
            return [self.packages[name]]
        return [self.generator, f"{self.path}/{self.folders[name]}"] if self.generator else []

    @property
    def missing(self) -> list[str]:
        """Return the binaries and folders that are not there."""
        return [name for name in (*self.packages, *self.folders) if not self.place(name).exists()]


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
    release="3.11.3",  # the Go module counts v0.311.3 for it
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
LEADER_WORKER_SET = Module(
    name="lws",
    path="sigs.k8s.io/lws",
    packages={"lws-controller": "sigs.k8s.io/lws/cmd"},
    folders={"crds": "config/crd/bases", "webhook": "config/webhook"},
)
_PICKER = "sigs.k8s.io/gateway-api-inference-extension"
# Two versions of the endpoint picker (EPP): the newer one holds requests, the older one can only refuse them.
PICKER_1_3 = Module(
    name="picker-1.3",
    path=_PICKER,
    packages={"picker-1.3": f"{_PICKER}/cmd/epp"},
    folders={"crds": "config/crd/bases"},
)
PICKER_1_2 = Module(
    name="picker-1.2", path=_PICKER, packages={"picker-1.2": f"{_PICKER}/cmd/epp"}, folders=PICKER_1_3.folders
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
_KUSTOMIZE = "sigs.k8s.io/kustomize/kustomize/v5"
_KUSTOMIZE_STAMP = "-X sigs.k8s.io/kustomize/api/provenance.version=v{release}"
# The ends of the range that docs/kustomize.md promises; 5.8.3 needs a newer Go than the servers do.
KUSTOMIZE_OLDEST = Module(
    name="kustomize-oldest", path=_KUSTOMIZE, packages={"kustomize-oldest": _KUSTOMIZE}, stamp=_KUSTOMIZE_STAMP
)
KUSTOMIZE_NEWEST = Module(
    name="kustomize-newest", path=_KUSTOMIZE, packages={"kustomize-newest": _KUSTOMIZE}, stamp=_KUSTOMIZE_STAMP
)
# The definitions that check manifests of custom kinds. Of KEDA and cert-manager the modules are fetched, not compiled.
KEDA_API = Module(name="keda-api", origin=KEDA.name, path=KEDA.path, packages={}, folders=KEDA.folders)
PROMETHEUS_OPERATOR = Module(
    name="prometheus-operator",
    path="github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring",
    packages={},
    folders={"crds": "v1"},
    generator="sigs.k8s.io/controller-tools/cmd/controller-gen",  # the module has Go types, and no definitions
)
CERT_MANAGER = Module(
    name="cert-manager",
    path="github.com/cert-manager/cert-manager",
    packages={},
    folders={"crds": "deploy/crds"},
)
# An API server has one backend for external metrics: KEDA's adapter, and this one in the tests of plain HPAs.
PROMETHEUS_ADAPTER = Module(
    name="prometheus-adapter",
    path="sigs.k8s.io/prometheus-adapter",
    packages={"prometheus-adapter": "sigs.k8s.io/prometheus-adapter/cmd/adapter"},
)
SERVERS = (ETCD, KUBERNETES, PROMETHEUS, KEDA)
TOOLS = (HELM, KUBECTL, KUSTOMIZE_OLDEST, KUSTOMIZE_NEWEST, PROMTOOL)
SCHEMAS = (KEDA_API, PROMETHEUS_OPERATOR, CERT_MANAGER)
CONTROLLERS = (LEADER_WORKER_SET,)  # only the tests of what they control need them
PICKERS = (PICKER_1_3, PICKER_1_2)  # only the tests of starts from zero need them, most of them the newer one
ALL = (*SERVERS, *CONTROLLERS, PICKER_1_3, *TOOLS, *SCHEMAS)  # what is built where no part is named
PARTS = {
    "servers": SERVERS,
    "controllers": CONTROLLERS,
    "pickers": PICKERS,
    "tools": (*TOOLS, *SCHEMAS),
    "adapter": (PROMETHEUS_ADAPTER,),
}


def own_binaries() -> Path | None:
    """Return the folder of ``WVA_E2E_BIN``, None when the variable is not set."""
    own = os.environ.get("WVA_E2E_BIN")
    return Path(own).absolute() if own else None


def skips_unavailable() -> bool:
    """Return whether tests that need an unavailable module are skipped. BuildError for another value."""
    match os.environ.get("WVA_E2E_UNAVAILABLE", ""):
        case "skip":
            return True
        case "":
            return False
        case other:
            raise BuildError(f"WVA_E2E_UNAVAILABLE is {other!r}; the only value it takes is 'skip'")


def cache_directory() -> Path:
    """Return the root of the cache: ``WVA_E2E_CACHE``, else the user's cache directory."""
    own = os.environ.get("WVA_E2E_CACHE")
    base = own or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "wva-controlplane"


def pinned_versions() -> dict[str, str]:
    """Return the version of each server as the go.mod files pin them, without building anything."""
    return {module.name: module.version for module in SERVERS}


def build(module: Module) -> None:
    """Build what is missing of ``module``; returns at once when everything is there.

    UnavailableError when the registry does not give a module, BuildError when something does not compile.
    """
    if not module.missing:
        return
    with _locked(module):
        missing = module.missing  # looked up again: another run may have built it while this one waited
        if not missing:
            return
        started = time.monotonic()
        print(f"fetching {module.name} {module.version} ...", flush=True)
        _fetch(module, [package for name in missing for package in module.needs(name)])
        for name in missing:
            print(f"building {name} {module.version} ...", flush=True)
            if name in module.packages:
                _compile(module, name)
            else:
                _make_folder(module, name)
            print(f"built {name}, {time.monotonic() - started:.0f} s after {module.name} began", flush=True)


def build_all(modules: Iterable[Module] = ALL) -> list[BuildError]:
    """Build the missing modules, two at a time; return the errors."""
    by_source: dict[Path, list[Module]] = {}
    for module in modules:  # modules of one go.mod compile the same packages: one after the other
        by_source.setdefault(module.source, []).append(module)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [error for errors in pool.map(_build_each, by_source.values()) for error in errors]


def _build_each(modules: Iterable[Module]) -> list[BuildError]:
    errors = []
    for module in modules:
        try:
            build(module)
        except BuildError as error:
            errors.append(error)
    return errors


def _fetch(module: Module, packages: Sequence[str]) -> None:
    """Download every module that the packages need; with no package, only the module itself."""
    arguments = ["list", "-deps", *packages] if packages else ["mod", "download", module.path]
    try:
        _go(module, *arguments, timeout_seconds=_FETCH_TIMEOUT_SECONDS)
    except TooSlowError as error:
        word = f"no answer within {_FETCH_TIMEOUT_SECONDS} s"
        raise UnavailableError(_cannot_be_had(module.name, module.path, f"v{module.version}", word)) from error
    except BuildError as error:
        found = _REFUSAL.search(str(error))
        if found is None or any(ours in str(error) for ours in _OURS):
            raise
        word = " ".join(found["word"].split())
        raise UnavailableError(_cannot_be_had(module.name, found["module"], found["version"], word)) from error


def _cannot_be_had(name: str, module: str, version: str, word: str) -> str:
    return f"{name} cannot be had: module {module} {version}: {word}"


def _compile(module: Module, name: str) -> None:
    target = module.place(name)
    unfinished = target.with_name(f".{name}.{os.getpid()}")
    try:
        _go(module, "build", *_flags(module), "-o", str(unfinished), module.packages[name])
        unfinished.rename(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _flags(module: Module) -> list[str]:
    return ["-buildvcs=false", "-trimpath", "-ldflags", module.linker_flags]


def _make_folder(module: Module, name: str) -> None:
    target = module.place(name)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        unfinished.mkdir()
        if module.generator:
            _generate(module, name, unfinished)
        else:
            _copy(module, name, unfinished)
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _generate(module: Module, name: str, target: Path) -> None:
    """Make CustomResourceDefinitions from Go types, without their descriptions, which are most of the text."""
    generator, types = module.needs(name)
    _go(module, "run", *_flags(module), generator, "crd:maxDescLen=0", f"paths={types}", f"output:crd:dir={target}")


def _copy(module: Module, name: str, target: Path) -> None:
    origin = Path(_go(module, "list", "-m", "-f", "{{.Dir}}", module.path).strip()) / module.folders[name]
    for file in sorted(origin.glob("*.yaml")):
        shutil.copyfile(file, target / file.name)  # contents only: files of the module cache are read-only


def _go(module: Module, *arguments: str, timeout_seconds: float | None = None) -> str:
    limit_seconds = _BUILD_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
    go = shutil.which("go")
    if go is None:
        raise BuildError(
            f"the Go toolchain is needed to build {module.name} and no 'go' is on the PATH; install the version that "
            f"{module.source / 'go.mod'} names or a newer one, or set WVA_E2E_BIN to a folder with the binaries, or "
            "point WVA_E2E_KUBECONFIG and WVA_E2E_PROMETHEUS_URL at an existing cluster"
        )
    # The compilers are short-lived and memory is plenty: fewer collections of garbage, less time.
    environment = {"GOGC": "400", **os.environ, "CGO_ENABLED": "0"}
    try:
        process = subprocess.run(
            [go, *arguments],
            cwd=module.source,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_seconds,
        )
    except subprocess.TimeoutExpired as error:
        words = f"did not end within {limit_seconds:g} s, and was stopped"
        raise TooSlowError(f"go {arguments[0]} for {module.name} in {module.source} {words}") from error
    if process.returncode != 0:
        raise BuildError(f"go {arguments[0]} failed for {module.name} in {module.source}:\n{process.stderr.strip()}")
    return process.stdout


@contextlib.contextmanager
def _locked(module: Module) -> Iterator[None]:
    module.directory.mkdir(parents=True, exist_ok=True)
    with (module.directory / f".{module.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def reported_version(module: Module, name: str) -> str:
    """Ask the binary for its version; some cannot tell, so it is the pinned one."""
    if module in (KEDA, PROMETHEUS_ADAPTER, *CONTROLLERS, *PICKERS):
        return f"{module.version} (pinned)"
    ask = _VERSION_ARGUMENTS.get(module.name, ("--version",))
    output = subprocess.run([module.binary(name), *ask], capture_output=True, text=True, check=True, timeout=30).stdout
    found = re.search(r"v?(\d+\.\d+\.\d+\S*)", output)
    return found[1] if found else output.strip()


def main(arguments: Sequence[str] = ()) -> int:
    """Build the named parts, or servers and tools; then print each binary's version and where it is.

    Returns 0 when all is there, 1 when something does not compile, 3 when only a module that cannot be had is missing.
    """
    if unknown := set(arguments) - PARTS.keys():
        print(f"no part named {', '.join(sorted(unknown))}; there are: {', '.join(PARTS)}", file=sys.stderr)
        return 1
    modules = [module for part in arguments for module in PARTS[part]] or ALL
    try:
        skip = skips_unavailable()
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    errors = build_all(modules)
    for module in modules:
        for name in module.packages.keys() - module.missing:
            print(f"{name:24} {reported_version(module, name):18} {module.binary(name)}")
    for error in errors:
        print(error, file=sys.stderr)
    if any(not isinstance(error, UnavailableError) for error in errors):
        return 1
    if not errors:
        return 0
    print(
        "Set WVA_E2E_BIN to a folder that has the binaries, or WVA_E2E_KUBECONFIG and WVA_E2E_PROMETHEUS_URL to an "
        "existing cluster; docs/development.md says how.",
        file=sys.stderr,
    )
    return 0 if skip else _REFUSED_EXIT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

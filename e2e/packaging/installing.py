"""Runs the deploy scripts with tools that only record their calls: the order, the arguments and the standard input."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
ORDINARY = (
    "base64", "bash", "cat", "dirname", "env", "grep", "mktemp", "paste", "rm", "sed", "sort",
)  # fmt: skip
RECORDED = ("docker", "helm", "kind", "kubectl", "openssl", "podman")
_READS = {
    "kubectl": {"get", "auth", "version"},
    "helm": {"status", "version", "list"},
    "kind": {"get"},
    "docker": {"image"},
    "podman": {"image"},
    "openssl": {"x509"},
}
_TOOL = """\
#!{interpreter} -IS
import sys
sys.path.append("{folder}")
import recorded_tool
sys.exit(recorded_tool.main())
"""  # a module, so that it is compiled once and not at each of some forty calls
_CONTEXTS = ("--context", "--kube-context")
_TIMEOUT_SECONDS = 240


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool."""

    tool: str
    argv: list[str]
    stdin: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """Return the arguments without the context, which any call may have."""
        if self.argv and self.argv[0] in _CONTEXTS:
            return self.argv[2:]
        return self.argv

    @property
    def writes(self) -> bool:
        """Return whether the call changes anything outside the script's own folder."""
        return self.words[0] not in _READS[self.tool] and "--dry-run=client" not in self.words

    def __str__(self) -> str:
        """Return the call as a user would type it."""
        return " ".join([self.tool, *self.words])


@dataclass(frozen=True, slots=True)
class ScriptOutcome:
    """How a script ended, and what it called."""

    code: int
    out: str
    err: str
    calls: list[ToolCall]

    @property
    def writes(self) -> list[str]:
        """The calls that change something, as one would type them."""
        return [str(call) for call in self.calls if call.writes]

    def beginning(self, words: str) -> list[ToolCall]:
        """Return the calls that begin with these words."""
        return [call for call in self.calls if f"{call} ".startswith(f"{words} ")]

    def release(self, name: str) -> ToolCall:
        """Return the one call that installs a release."""
        [call] = self.beginning(f"helm upgrade --install {name}")
        return call

    def values(self, name: str = "workload-variant-autoscaler") -> dict[str, str]:
        """Return the values that a release gets: those that the script chose, and over them those of the caller."""
        return self.chosen(name) | self.given(name)

    def given(self, name: str = "workload-variant-autoscaler") -> dict[str, str]:
        """Return the values on the command line, which win over every file."""
        words = self.release(name).words
        pairs = [words[at + 1] for at, word in enumerate(words) if word in {"--set", "--set-string", "--set-file"}]
        return dict(pair.split("=", 1) for pair in pairs)

    def chosen(self, name: str = "workload-variant-autoscaler") -> dict[str, str]:
        """Return the values that the script chose for a release, by their paths."""
        return dict(_flat("", yaml.safe_load(self.release(name).stdin) or {}))


class Machine:
    """A machine with only these tools on its path, and the world that the tools report."""

    def __init__(self, folder: Path, *, without: Iterable[str] = (), **world: Any) -> None:
        """Make the folder of tools; ``world`` is what ``recorded_tool`` keeps."""
        self.folder = folder
        self._path = folder / "bin"
        self._path.mkdir(parents=True)
        for name in ORDINARY:
            found = shutil.which(name)
            assert found, f"{name} is not on this machine"
            (self._path / name).symlink_to(found)
        for name in set(RECORDED) - set(without):
            (self._path / name).write_text(_TOOL.format(interpreter=sys.executable, folder=Path(__file__).parent))
            (self._path / name).chmod(0o755)
        self.change(**world)

    @property
    def world(self) -> dict[str, Any]:
        """The objects, releases and clusters that the tools report now."""
        file = self.folder / "world.json"
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return found

    def change(self, **world: Any) -> None:
        """Change the world from now on."""
        (self.folder / "world.json").write_text(json.dumps(self.world | world), encoding="utf-8")

    def run(self, *options: str, script: str = "install.sh", **settings: str) -> ScriptOutcome:
        """Run a script with options and variables, and no other variables of this process."""
        calls = self.folder / "calls.jsonl"
        calls.unlink(missing_ok=True)
        scratch = self.folder / "tmp"
        scratch.mkdir(exist_ok=True)
        environment = {"PATH": str(self._path), "RECORDED": str(self.folder), "TMPDIR": str(scratch), **settings}
        done = subprocess.run(
            [self._path / "bash", DEPLOY / script, *options],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
            cwd=os.sep,
        )
        assert not list(scratch.iterdir()), "the script left files behind"
        lines = calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []
        return ScriptOutcome(
            done.returncode, done.stdout, done.stderr, [ToolCall(**json.loads(line)) for line in lines]
        )


def _flat(path: str, values: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(values, dict):
        yield path, str(values)
        return
    for name, value in values.items():
        yield from _flat(f"{path}.{name}" if path else name, value)


def node(name: str, **labels: str) -> dict[str, Any]:
    """Return a node with labels; ``nvidia`` is the product of its GPUs."""
    products = {f"{vendor}.com/gpu.product": product for vendor, product in labels.items()}
    return {"metadata": {"name": name, "labels": products}, "spec": {}}

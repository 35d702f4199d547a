"""The text of the Containerfile, checked without building the image."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from e2e import confined
from image import assemble
from wva import __version__

ROOT = Path(__file__).resolve().parents[2]
LABEL = "org.opencontainers.image."


@dataclass
class BuildStage:
    """One stage: its base and what it does, in order."""

    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        """Return the arguments of all instructions of one kind."""
        return [text for name, text in self.steps if name == word]


@pytest.fixture(name="stages")
def _stages() -> dict[str, BuildStage]:
    """Give the stages by name, the arguments before the first one as a stage without a name; the last is ``final``."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Containerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = {"": BuildStage("")}
    current = found[""]
    for line in re.sub(r"\\\n", " ", text).splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            current = found[name or "final"] = BuildStage(base)
        elif word:
            current.steps.append((word, " ".join(rest.split())))
    return found


def test_two_stages_and_only_files_go_over(stages: dict[str, BuildStage]):
    """The final stage takes one directory from the build and installs nothing."""
    assert list(stages) == ["", "build", "final"]
    assert stages["final"].all("COPY") == ["--from=build /files/ /"]
    assert stages["build"].all("RUN")[-1] == "python3 -m image.assemble /files"


def test_the_files_are_made_for_the_python_of_the_base(stages: dict[str, BuildStage]):
    """Both bases are of one Debian release, and the build fails when their Pythons differ."""
    defaults = dict(text.split("=", 1) for text in stages[""].all("ARG"))
    assert (defaults["BUILD_IMAGE"].rpartition("/")[2], defaults["BASE_IMAGE"].rpartition("/")[2]) == (
        "debian:trixie-slim",  # Debian 13
        "python3-debian13:nonroot",
    )
    assert [json.loads(text) for text in stages["final"].all("RUN")] == [["/manager", "run", "--help"]]
    assert str(assemble.INTERPRETER) == "/usr/bin/python3"


@pytest.mark.parametrize(("stage", "name"), [("build", "BUILD"), ("final", "BASE")])
def test_each_base_can_be_pinned_and_none_is_made_up(stages: dict[str, BuildStage], stage: str, name: str):
    """The digest is an argument, empty unless given. A build without a digest takes the tag."""
    assert stages[stage].base == f"${{{name}_IMAGE}}${{{name}_DIGEST:+@${{{name}_DIGEST}}}}"
    assert f"{name}_DIGEST=" in stages[""].all("ARG")


def test_nobody_runs_as_root(stages: dict[str, BuildStage]):
    """The user is set before any command runs, and by number, so that Kubernetes can check runAsNonRoot."""
    final = stages["final"]
    assert final.all("USER") == [f"{confined.USER}:{confined.USER}"]
    words = [word for word, _ in final.steps]
    assert words.index("USER") < words.index("RUN")


def test_no_shell_is_needed(stages: dict[str, BuildStage]):
    """Entry point and command are lists; the entry point is the original's path, and takes flags as arguments."""
    assert [json.loads(text) for text in stages["final"].all("ENTRYPOINT")] == [[str(assemble.ENTRY)]]
    assert not stages["final"].all("CMD")
    assert not stages["final"].all("ENV")


def test_labels_tell_version_revision_and_base(stages: dict[str, BuildStage]):
    """Scanners and registries read these labels. The version is the program's."""
    [text] = stages["final"].all("LABEL")
    labels = dict(re.findall(rf'{LABEL}([a-z.]+)="([^"]*)"', text))
    assert labels["licenses"] == "Apache-2.0"
    given = {key: value for key, value in labels.items() if value.startswith("$")}
    assert given == {
        "version": "${VERSION}",
        "revision": "${REVISION}",
        "created": "${CREATED}",
        "base.name": "${BASE_IMAGE}",
        "base.digest": "${BASE_DIGEST}",
    }
    assert f"VERSION={__version__}" in stages["final"].all("ARG")


def test_the_build_sees_what_it_copies_and_no_more(stages: dict[str, BuildStage]):
    """.containerignore lets in exactly the sources that the build copies."""
    copied = {source.rstrip("/") for text in stages["build"].all("COPY") for source in text.split()[:-1]}
    lines = (ROOT / ".containerignore").read_text(encoding="utf-8").splitlines()
    allowed = {line[1:].removesuffix("/*.py") for line in lines if line.startswith("!")}
    assert "*" in lines
    assert allowed == copied
    assert all((ROOT / source).exists() for source in copied)

"""The workflows of GitHub are valid, pinned and no more powerful than they must be. Nothing here runs them."""

from __future__ import annotations

import configparser
import json
import re
import subprocess
from copy import deepcopy
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())
NIGHTLY, RELEASE, TEST = (ROOT / ".github" / "workflows" / f"{name}.yaml" for name in ("nightly", "release", "test"))
PINNED = re.compile(r"uses: (\./\.github/workflows/[a-z]+\.yaml|[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)")
"""A workflow of this repository, or an action at a commit, with the version that this commit had."""


class _WorkflowLoader(yaml.SafeLoader):
    """Reads YAML 1.2 as GitHub does: ``on`` is a word and no switch."""


_WorkflowLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool" or first in "tTfF"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@cache
def workflow(path):
    """Return the document of a workflow."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_WorkflowLoader)  # noqa: S506 - it is a SafeLoader


def errors(document):
    """Return what GitHub's schema finds in a document."""
    schema = json.loads((Path(__file__).parent / "schema.json").read_text(encoding="utf-8"))
    return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(document)]


def scripts(path):
    """Return each script of a workflow."""
    return [step["run"] for job in workflow(path)["jobs"].values() for step in job.get("steps", ()) if "run" in step]


def test_there_are_the_three():
    """One tests, one tests more each night, one releases; a fourth would not be looked at below by its name."""
    assert WORKFLOWS == [NIGHTLY, RELEASE, TEST]


def test_what_a_change_does_not_run_is_run_each_night():
    """The command of each change leaves out one marker alone, and that of the night nothing."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "tox.ini")
    left_out = r'-m "not nightly" '
    assert left_out in settings["testenv:tests"]["commands"]
    assert settings["testenv:nightly"]["commands"] == "pytest -n auto --dist worksteal {posargs:tests}"
    assert "schedule" in workflow(NIGHTLY)["on"]
    assert scripts(NIGHTLY)[-1].endswith("tox -e nightly")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_valid(path):
    """The schema that editors use for GitHub's workflows finds no error."""
    assert errors(workflow(path)) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(permission={}),
        lambda document: document.pop("on"),
        lambda document: document["jobs"]["ci"].pop("runs-on"),
        lambda document: document["jobs"]["ci"]["steps"][0].update(users="a"),
        lambda document: document["permissions"].update(contents="all"),
    ],
    ids=["unknown-key", "no-event", "no-machine", "unknown-key-of-a-step", "unknown-right"],
)
def test_an_error_in_a_workflow_is_found(change):
    """The schema finds a misspelt key, a missing one and a wrong word."""
    document = deepcopy(workflow(TEST))
    change(document)
    assert errors(document) != []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_what_others_wrote_is_pinned(path):
    """A tag can move to other code. A commit cannot."""
    used = re.findall(r"uses: .*", path.read_text(encoding="utf-8"))
    assert used
    assert [line for line in used if not PINNED.fullmatch(line)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_reads_and_only_the_jobs_that_push_write(path):
    """Without more words a job may read the repository alone, and no job keeps a token in the clone."""
    document = workflow(path)
    assert document["permissions"] == {"contents": "read"}
    for name, job in document["jobs"].items():
        wanted = {"image": {"packages"}, "publish": {"packages", "id-token"}}.get(name, set())
        rights = job.get("permissions", {})
        assert {right for right, level in rights.items() if level == "write"} == wanted, name
        clones = [step for step in job.get("steps", ()) if step.get("uses", "").startswith("actions/checkout@")]
        assert all(step["with"]["persist-credentials"] is False for step in clones)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_job_ends(path):
    """A job that hangs is stopped long before the six hours that GitHub gives it."""
    jobs = workflow(path)["jobs"]
    assert all(0 < job["timeout-minutes"] <= 240 for job in jobs.values() if "uses" not in job)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_command_that_fails_in_a_pipe_stops_its_step(path):
    """GitHub's own default goes on after it; with the shell ``bash`` it sets pipefail."""
    assert workflow(path)["defaults"] == {"run": {"shell": "bash"}}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_text_of_others_becomes_a_script(path):
    """A script takes what it needs from its environment: an expression in it is replaced before the shell runs."""
    assert [script for script in scripts(path) if "${{" in script] == []


def test_scripts_have_no_faults():
    """Shellcheck finds nothing in a script of the workflows."""
    text = "\n".join(f"({script})" for path in WORKFLOWS for script in scripts(path))
    declared = "IMAGE='' VERSION=''\n"
    done = subprocess.run(
        ["shellcheck", "--shell=bash", "-"],  # noqa: S607 - of the environment in which the tests run
        input=f"set -e\n{declared}{text}",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout


def test_the_test_is_that_of_the_repository():
    """The workflow runs .ci/run, with the oldest Python that is supported and the Go that the pinned modules name."""
    steps = workflow(TEST)["jobs"]["ci"]["steps"]
    assert scripts(TEST) == [".ci/run"]
    given = {key: value for step in steps for key, value in step.get("with", {}).items()}
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'requires-python = ">={given["python-version"]}"' in project
    modules = sorted((ROOT / "e2e" / "controlplane" / "modules").glob("*/go.mod"))
    named = {re.search(r"^go (\d+\.\d+)", file.read_text(encoding="utf-8"), re.MULTILINE)[1] for file in modules}
    assert named == {given["go-version"]}


def test_nothing_is_released_that_was_not_tested():
    """The tests run first, on the same commit, and the image of both platforms is there before a name is given."""
    jobs = workflow(RELEASE)["jobs"]
    assert jobs["test"] == {"uses": f"./{TEST.relative_to(ROOT)}"}
    assert {"test", "names"} <= set(jobs["image"]["needs"])
    assert {"image", "names"} <= set(jobs["publish"]["needs"])
    assert workflow(RELEASE)["on"] == {"push": {"tags": ["v*"]}}


def test_the_image_is_for_the_platforms_that_the_page_names():
    """A machine of its kind builds each platform, with the arguments of the Containerfile; both get one name."""
    image = workflow(RELEASE)["jobs"]["image"]
    rows = image["strategy"]["matrix"]["include"]
    assert {row["platform"]: row["runner"].endswith("-arm") for row in rows} == {
        "linux/amd64": False,
        "linux/arm64": True,
    }
    page = (ROOT / "docs" / "image.md").read_text(encoding="utf-8")
    assert all(row["suffix"] in page for row in rows)
    (build,) = [step["with"] for step in image["steps"] if "build-args" in step.get("with", {})]
    containerfile = (ROOT / "Containerfile").read_text(encoding="utf-8")
    given = re.findall(r"^(\w+)=", build["build-args"], re.MULTILINE)
    assert set(given) == set(re.findall(r"^ARG (\w+)=", containerfile, re.MULTILINE)) - {"BUILD_IMAGE", "BASE_IMAGE"}
    joined, _ = scripts(RELEASE)[-2:]
    assert all(f'"$IMAGE:$VERSION-{row["suffix"]}"' in joined for row in rows)


def test_everything_goes_to_the_registry_of_the_repository_itself():
    """A clone pushes to its own name on ghcr.io, with the token of its run: no other registry and no other secret."""
    text = RELEASE.read_text(encoding="utf-8")
    assert set(re.findall(r"secrets\.(\w+)", text)) == {"GITHUB_TOKEN"}
    assert set(re.findall(r"registry: (\S+)", text)) == {"ghcr.io"}
    assert "image=ghcr.io/${GITHUB_REPOSITORY,,}" in text


def test_image_and_chart_are_signed_by_their_digest():
    """A tag that moves later takes no signature with it."""
    signed = re.findall(r'cosign sign --yes (?:--recursive )?"(\S+)"', "\n".join(scripts(RELEASE)))
    assert signed == ["$IMAGE@$digest", "$IMAGE/charts/workload-variant-autoscaler@$digest"]


def test_the_chart_that_is_pushed_names_the_image_that_is_pushed(tmp_path):
    """The script's own sed changes the image in the chart's values, and nothing else."""
    chart = tmp_path / "charts" / "workload-variant-autoscaler"
    chart.mkdir(parents=True)
    source = ROOT / "charts" / "workload-variant-autoscaler" / "values.yaml"
    (chart / "values.yaml").write_bytes(source.read_bytes())
    (line,) = [line for line in scripts(RELEASE)[-1].splitlines() if line.startswith("sed -i ")]
    subprocess.run(  # noqa: S603 - the repository's own script
        ["/bin/bash", "-c", line], cwd=tmp_path, env={"IMAGE": "ghcr.io/me/wva"}, check=True, timeout=30
    )
    before, after = (yaml.safe_load(file.read_text(encoding="utf-8")) for file in (source, chart / "values.yaml"))
    assert after["wva"]["image"].pop("repository") == "ghcr.io/me/wva"
    before["wva"]["image"].pop("repository")
    assert after == before


def test_the_pages_say_that_they_were_not_run():
    """The page about the image describes the workflows, and says that nobody has seen them run."""
    page = (ROOT / "docs" / "image.md").read_text(encoding="utf-8")
    assert all(f"`{path.relative_to(ROOT)}`" in page for path in WORKFLOWS)
    assert "They have not been run" in page

"""The output and the exit status of ``wva migrate``."""

from __future__ import annotations

import json

import pytest
import yaml

from wva.api.crd import definition
from wva.sim.apiserver import EmbeddedApiServer, ServerOptions, StoreOptions, kind_from_definition

VARIANT = {
    "apiVersion": "llmd.ai/v1alpha1",
    "kind": "VariantAutoscaling",
    "metadata": {"name": "chat", "namespace": "ns"},
    "spec": {"modelID": "m", "scaleTargetRef": {"kind": "Deployment", "name": "chat"}},
}


@pytest.fixture
async def api():
    """Return an embedded API server."""
    options = ServerOptions(store=StoreOptions(namespaces=("ns",)))
    async with EmbeddedApiServer([kind_from_definition(definition())], options=options) as server:
        yield server


@pytest.fixture
def migrate(call, api, tmp_path):
    """Return a function that runs the command against the embedded API server."""
    path = str(api.kubeconfig(tmp_path / "kubeconfig"))
    return lambda *words: call("migrate", *words, KUBECONFIG=path)


async def test_cluster_is_looked_at(migrate, api):
    """Without a path the command checks the cluster, and prints for each finding the command that mends it."""
    api.store.create("variantautoscalings.llmd.ai", VARIANT)
    outcome = await migrate()
    assert outcome.status == 0
    assert (
        "should VariantAutoscaling ns/chat\n       has no label inference.optimization/acceleratorName" in outcome.out
    )
    assert "do: kubectl label variantautoscaling chat -n ns" in outcome.out
    assert "its Deployment chat does not exist" in outcome.out
    assert outcome.out.splitlines()[-1].startswith("1 objects looked at: 0 must, ")


async def test_kinds_that_are_not_served_are_said(migrate):
    """A cluster without KEDA gives no finding about ScaledObject."""
    outcome = await migrate("--output=json")
    assert outcome.status == 0
    kinds = {finding["kind"] for finding in json.loads(outcome.out)["findings"]}
    assert "ScaledObject" not in kinds


async def test_unreachable_cluster_is_one_line(call, tmp_path):
    """The command ends with status 1 and one line with the reason."""
    outcome = await call("migrate", KUBECONFIG=str(tmp_path / "none"))
    assert outcome.status == 1
    assert len(outcome.lines) == 1
    assert "the cluster cannot be read" in outcome.lines[0]


@pytest.mark.parametrize("folder", ["", "notes.txt", "other.yaml"])
async def test_nothing_is_green_that_was_not_looked_at(call, tmp_path, folder):
    """A folder without manifests of WVA may be the wrong one."""
    if folder:
        (tmp_path / folder).write_text("kind: Secret\napiVersion: v1\n", encoding="utf-8")
    outcome = await call("migrate", str(tmp_path))
    assert outcome.status == 1
    assert outcome.lines == [
        "wva: nothing was looked at",
        f"wva: {tmp_path}: expected files (.yaml, .yml or .json) with objects of WVA",
    ]


async def test_a_cluster_that_shows_nothing_is_not_green(migrate, api):
    """Each kind that may not be listed is named."""
    api.access.authorize = lambda _, wish: wish.verb != "list"
    outcome = await migrate()
    assert outcome.status == 1
    assert outcome.lines[0] == "wva: nothing was looked at"
    assert outcome.lines[1].startswith("wva: VariantAutoscaling may not be listed, so it was not looked at: ")


async def test_files_are_looked_at(call, tmp_path):
    """A finding of severity "must" makes the status 1; control characters in names are escaped."""
    file = tmp_path / "va.yaml"
    broken = {**VARIANT, "metadata": {"name": "chat\x1b[2J", "namespace": "ns"}, "spec": {"modelID": "m"}}
    file.write_text(yaml.safe_dump(broken), encoding="utf-8")
    outcome = await call("migrate", str(file))
    assert outcome.status == 1
    assert "must   VariantAutoscaling ns/chat\\x1b[2J" in outcome.out
    assert "\x1b" not in outcome.out


async def test_json_has_every_field(call, tmp_path):
    """``--output json`` prints the number of objects, and every field of each finding."""
    file = tmp_path / "va.yaml"
    file.write_text(yaml.safe_dump({**VARIANT, "spec": {"modelID": "m"}}), encoding="utf-8")
    answer = json.loads((await call("migrate", "--output=json", str(file))).out)
    assert answer["objects"] == 1
    first = answer["findings"][0]
    assert set(first) == {"severity", "kind", "key", "problem", "change"}
    assert (first["severity"], first["key"]) == ("must", "ns/chat")


async def test_unreadable_file_is_one_line(call, tmp_path):
    """The command ends with status 1 and one line that names the file."""
    outcome = await call("migrate", str(tmp_path / "absent.yaml"))
    assert outcome.status == 1
    expected = "No such file or directory: expected a file of manifests"
    assert outcome.lines == [f"wva: {tmp_path / 'absent.yaml'}: {expected}"]

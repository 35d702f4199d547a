"""Users have different versions of kustomize: each from 5.0 to 5.8 renders the same objects."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from e2e import kustomize, tools
from e2e.controlplane.build import KUSTOMIZE_NEWEST, KUSTOMIZE_OLDEST
from e2e.kustomize import DEPLOY, MONITORS, OVERLAYS, combinations
from e2e.packaging.everything import folder, overlay

BY_THEMSELVES = {DEPLOY / "components" / name for name in MONITORS.values()}
FOLDERS = [
    file.parent
    for file in sorted(DEPLOY.rglob("[kK]ustomization*"))
    if DEPLOY / "components" not in file.parents or file.parent in BY_THEMSELVES
]
RENDERERS = {
    KUSTOMIZE_OLDEST.name: lambda: (tools.binary(KUSTOMIZE_OLDEST.name), "build"),
    KUSTOMIZE_NEWEST.name: lambda: (tools.binary(KUSTOMIZE_NEWEST.name), "build"),
}
if machines_own := shutil.which("kubectl"):
    RENDERERS["kubectl of this machine"] = lambda: (Path(machines_own), "kustomize")


@pytest.mark.parametrize("renderer", RENDERERS)
def test_every_folder_and_overlay_with_its_components_renders_the_same(renderer: str, tmp_path: Path):
    """Each version renders the same as the pinned kubectl, which all other tests use."""
    command = RENDERERS[renderer]()
    expected = {path: folder(path) for path in FOLDERS}
    for name in OVERLAYS:
        parts = combinations(name)[-1]
        own = kustomize.write(
            tmp_path / name, DEPLOY / "overlays" / name, components=parts, namespace="team-a", prefix="blue-"
        )
        expected[own] = overlay(name, parts, namespace="team-a", prefix="blue-")
    assert len(expected) > 20
    for path, items in expected.items():
        done = subprocess.run([*command, path], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, (path, done.stderr[-500:])
        assert [item for item in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if item] == items, path


def test_the_guide_promises_the_versions_that_are_tried():
    """The guide names the oldest and the newest version that the tests try."""
    page = (DEPLOY.parent / "docs" / "kustomize.md").read_text(encoding="utf-8")
    oldest, newest = (module.version.rpartition(".")[0] for module in (KUSTOMIZE_OLDEST, KUSTOMIZE_NEWEST))
    assert f"Every kustomize from {oldest} to {newest}" in page

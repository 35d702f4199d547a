"""Renders all objects that users apply, with the tools that users have."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from e2e import kustomize
from e2e.controlplane.api import Body
from e2e.kustomize import DEPLOY, OVERLAYS, combinations
from e2e.packaging.chart_matrix import CASES


def of_the_chart() -> dict[str, list[Body]]:
    """Return the objects of the chart with each set of values."""
    return {name: case.render() for name, case in CASES.items()}


def of_kustomize() -> dict[str, list[Body]]:
    """Return the objects of each overlay with its components, and of each other folder that one can apply."""
    manifests = {
        "-".join((name, *components)): overlay(name, components)
        for name in OVERLAYS
        for components in combinations(name)
    }
    for file in sorted(DEPLOY.rglob("[kK]ustomization*")):
        kind = yaml.safe_load(file.read_text(encoding="utf-8")).get("kind", "Kustomization")
        if kind == "Kustomization" and file.parent.parent.name != "overlays":
            manifests[str(file.parent.relative_to(DEPLOY))] = folder(file.parent)
    return manifests


@cache
def overlay(name: str, components: tuple[str, ...] = (), *, namespace: str = "", prefix: str = "") -> list[Body]:
    """Return the objects of an overlay with components, in a namespace and with a prefix of one's own."""
    with TemporaryDirectory() as directory:
        own = kustomize.write(
            Path(directory),
            DEPLOY / "overlays" / name,
            components=components,
            namespace=namespace,
            prefix=prefix,
        )
        return kustomize.render(own)


@cache
def folder(path: Path) -> list[Body]:
    """Return the objects of a folder with a kustomization."""
    return kustomize.render(path)

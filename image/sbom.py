"""The bill of materials of the image's Python part, as CycloneDX JSON.

In: a folder of installed distributions. Out: one component for each, with package URL, licence, home page and what it
depends on; the program itself is the root. It says what is installed, not what was asked for. Debian's packages in the
base image are not listed: the base carries its own package database, which scanners read.

The same folder and time give the same bytes. The time is ``SOURCE_DATE_EPOCH`` where it is set.
"""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement

from image.lock import canonical

_ROOT = "wva"
_HOMES = ("homepage", "home", "source", "source code", "repository", "github", "documentation")


def bill(folder: Path, *, now: datetime) -> str:
    """Return the bill of the distributions in ``folder`` as JSON. KeyError when the program is not among them."""
    found = {canonical(item.name): item for item in distributions(path=[str(folder)])}
    components = {name: _component(name, item) for name, item in sorted(found.items())}
    bom = Bom(components=[component for name, component in components.items() if name != _ROOT])
    for name, item in found.items():
        needed = [components[other] for other in _requirements(item) if other in components]
        bom.register_dependency(components[name], needed)
    bom.metadata.component = components[_ROOT]
    bom.metadata.timestamp = now
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, " ".join(sorted(str(item.purl) for item in components.values())))
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def _component(name: str, item: Distribution) -> Component:
    home = _home(item)
    return Component(
        name=name,
        version=item.version,
        type=ComponentType.APPLICATION if name == _ROOT else ComponentType.LIBRARY,
        bom_ref=f"{name}=={item.version}",
        purl=PackageURL(type="pypi", name=name, version=item.version),
        description=_first(item, "Summary") or None,
        licenses=_licences(item),
        external_references=[ExternalReference(type=ExternalReferenceType.WEBSITE, url=XsUri(home))] if home else [],
    )


def _licences(item: Distribution) -> list[License]:
    """Return the licence from the newest of the three places where metadata may have it."""
    said = _first(item, "License-Expression")
    if not said and "\n" not in (short := _first(item, "License")):
        said = short
    if not said or said == "UNKNOWN":
        classifiers = item.metadata.get_all("Classifier") or []
        said = " AND ".join(text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License ::"))
    return [LicenseFactory().make_from_string(said)] if said else []


def _first(item: Distribution, field: str) -> str:
    """Return a field of the metadata, of which there may be several or none."""
    return next(iter(item.metadata.get_all(field) or []), "")


def _home(item: Distribution) -> str:
    urls = [entry.partition(",") for entry in item.metadata.get_all("Project-URL") or []]
    known = {label.strip().lower(): url.strip() for label, _, url in urls}
    return _first(item, "Home-page") or next((known[label] for label in _HOMES if label in known), "")


def _requirements(item: Distribution) -> Iterable[str]:
    for text in item.requires or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonical(requirement.name)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the bill of a folder."""
    parser = argparse.ArgumentParser(prog="python -m image.sbom", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the folder of installed distributions")
    arguments = parser.parse_args(argv)
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    sys.stdout.write(bill(arguments.folder, now=now))
    return 0


if __name__ == "__main__":
    sys.exit(main())

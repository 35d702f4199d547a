"""Judges the whole suite by what API servers noted: ``python -m e2e.audit_report FOLDER [ARGUMENT...]``.

In: the logs that ``WVA_E2E_AUDIT=FOLDER`` kept of every control plane of a run. Out: exit status 1 and a line for each
problem. Two things are problems: the API server refused a request of a controller that it should have allowed, or no
controller used a right of ``deploy/rbac``. Further arguments are those of the test run. With any of them only a part of
the suite ran, so unused rights are no problem then. An existing cluster keeps no such logs, so it cannot be judged.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from e2e.controlplane.audit import AuditedRequest, accesses, logs_in, refused
from e2e.manifests import DEPLOY, SERVICE_ACCOUNT, TARGET_COMPONENTS, target_rules
from e2e.rights import Right, rights, rights_of
from wva.model.records import replace

UNUSED_FOR_A_REASON: dict[Right, str] = {}
"""Rights that no test can make the controller use, each with the reason why it is granted nevertheless."""


def granted() -> set[Right]:
    """Return what ``deploy/rbac`` lets the controller do, and the components for further kinds of targets."""
    items = []
    for file in sorted((DEPLOY / "rbac").glob("*.yaml")):
        items += [item for item in yaml.safe_load_all(file.read_text(encoding="utf-8")) if "kind" in item]
    of_targets = (right for kind in TARGET_COMPONENTS for right in rights(target_rules(kind)))
    return rights_of(SERVICE_ACCOUNT, items) | set(of_targets)


def unused(rights: Iterable[Right], made: Iterable[AuditedRequest]) -> list[Right]:
    """Return the rights that no allowed request used. A request uses the right on its named object, if there is one."""
    given = set(rights)
    used = set()
    for access in made:
        if not access.forbidden:
            named = Right(access.group, access.resource, access.verb, access.name)
            used.add(named if named in given else replace(named, name=""))
    return sorted(given - used)


def report(folder: Path, *, whole: bool) -> list[str]:
    """Return the problems, one line each. ``whole`` says whether the whole suite ran."""
    directories = sorted(path for path in folder.glob("*") if path.is_dir())
    if not directories:
        return [f"nothing was kept in {folder}"]
    problems = [f"refused: {access}" for access in refused(directories) if is_controller(access.account)]
    if whole:
        made = (access for directory in directories for access in accesses(logs_in(directory)))
        controllers = (access for access in made if is_controller(access.account))
        problems += [
            f"granted and never used: {right}"
            for right in unused(granted(), controllers)
            if right not in UNUSED_FOR_A_REASON
        ]
    return problems


def is_controller(account: str) -> bool:
    """Return whether controllers run as this ServiceAccount, with any prefix of the installation."""
    return account.endswith(SERVICE_ACCOUNT)


def main(arguments: Sequence[str]) -> int:
    """Print the report and return the exit status."""
    if "WVA_E2E_KUBECONFIG" in os.environ:
        print("an existing cluster: what its API server noted is not known here")
        return 0
    folder, *part = arguments
    problems = report(Path(folder), whole=not part)
    for line in problems:
        print(line)
    if not problems:
        print("the controllers were refused nothing" + ("" if part else ", and used every right they have"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Whether a query takes the series of the controller only: by the namespace that Prometheus gives to its target.

Every pod whose page Prometheus scrapes may expose series of the same names, with all other labels. A page cannot set
``namespace``: Prometheus renames that label of a page to ``exported_namespace``.
"""

from __future__ import annotations

import re
from typing import Final

from wva.migration.controllers import known_controllers
from wva.migration.objects import Inventory

UNPINNED: Final = "takes the number from every page that Prometheus scrapes: any pod can forge it"
_MATCHER: Final = re.compile(r"""(?<!\w)namespace\s*=~?\s*["'`][^"'`]+["'`]""")
_NAMESPACE, _JOB = "NAMESPACE-OF-THE-CONTROLLER", "NAME-OF-ITS-METRICS-SERVICE"


def pinned(query: str) -> bool:
    """Tell whether a query names the namespace of the target."""
    return _MATCHER.search(query) is not None


def target_matchers(inventory: Inventory) -> str:
    """Return the matchers to add: with the namespace of the controller if there is one, for people to complete."""
    namespaces = sorted({controller.key.namespace for controller in known_controllers(inventory)})
    namespace = namespaces[0] if len(namespaces) == 1 else _NAMESPACE
    return f'job="{_JOB}",namespace="{namespace}"'

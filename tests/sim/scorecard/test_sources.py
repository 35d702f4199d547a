"""A run depends on what its policy imports, and on nothing else of the program."""

from __future__ import annotations

import grimp
import pytest

from wva.sim.rivals import POLICIES
from wva.sim.scorecard.sources import PACKAGE, STAGE, digest_of, module_of, sources

WVA = "wva.sim.rivals.wva"
HPA = "wva.sim.rivals.kubernetes"


def names(*modules):
    """Return the files of modules, relative to the program."""
    return {path.relative_to(PACKAGE).as_posix() for path in sources(modules)}


@pytest.mark.parametrize("module", [WVA, HPA])
def test_what_a_policy_imports_is_all_there(module):
    """The files are those that another program finds to be imported, with the packages around them."""
    graph = grimp.build_graph("wva")
    seen, to_see = set(), [module, STAGE]
    while to_see:
        one = to_see.pop()
        if one not in seen:
            seen.add(one)
            parts = one.split(".")
            to_see += [".".join(parts[:count]) for count in range(1, len(parts))]
            to_see += graph.find_modules_directly_imported_by(one)
    places = [PACKAGE.parent / one.replace(".", "/") for one in seen]
    files = {place / "__init__.py" if place.is_dir() else place.with_suffix(".py") for place in places}
    assert set(sources((module, STAGE))) == files


def test_a_rival_does_not_depend_on_decisions():
    """A change of a decision, or of another rival, leaves the runs of an HPA as they are; one of an engine does not."""
    assert any(name.startswith("decide/") for name in names(WVA))
    assert not any(name.startswith(("decide/", "publish/", "app/", "sim/commands")) for name in names(HPA, STAGE))
    assert "sim/rivals/keda.py" not in names(HPA, STAGE)
    assert {"sim/fleet/steps.py", "sim/stage/world.py", "sim/rivals/hpa.py"} <= names(HPA, STAGE)


def test_every_policy_is_from_a_module_of_its_package():
    """The module of a policy is the one that registers it, also with a target."""
    assert module_of(POLICIES["wva"]) == WVA
    assert module_of(POLICIES["hpa-kv"]) == module_of(POLICIES["hpa-kv@0.5"]) == HPA
    assert all(module_of(policy).startswith("wva.sim.rivals.") for policy in POLICIES.values())


def test_the_digest_is_that_of_the_files(tmp_path):
    """It changes with a file that is imported, also within a function, and with no other."""
    package = tmp_path / "wva"
    for name, text in {
        "__init__.py": "",
        "sim/stage/run.py": "import os",
        "one.py": "def f():\n    from wva.two import three",
        "two/__init__.py": "",
        "two/three.py": "3",
        "other.py": "4",
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")

    def after(name):
        before = digest_of("wva.one", package=package)
        (package / name).write_text("5", encoding="utf-8")
        return digest_of("wva.one", package=package) != before

    assert not after("other.py")
    assert after("two/three.py")
    assert after("two/__init__.py")
    assert after("sim/stage/run.py")

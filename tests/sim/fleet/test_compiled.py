"""Machine code and the interpreter give the same bits."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.fleet.services import SMALL, fingerprint, fingerprint_of_roles, service
from wva.sim.fleet import columns, compiled, gateway, handover, observed, steps
from wva.sim.fleet.engine import DrivenEngine
from wva.sim.fleet.prepare import prepare
from wva.sim.fleet.requests import UserRequest
from wva.sim.fleet.users import Routing

HERE = Path(compiled.__file__).parent


@pytest.fixture(scope="module")
def interpreted():
    """Return the fingerprints from a process that compiles nothing."""
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", "tests.sim.fleet.services"]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=True)  # noqa: S603 - this interpreter, these tests
    return done.stdout.splitlines()


@pytest.mark.parametrize("routing", Routing)
def test_compiled_and_interpreted_give_the_same_bits(interpreted, routing):
    """The end of every request and the pages of every engine are the same in machine code and in the interpreter."""
    assert compiled.COMPILED, "the development environment has numba"
    assert fingerprint(routing) == interpreted[routing]


def test_handovers_give_the_same_bits_compiled_and_interpreted(interpreted):
    """Also where requests go from prefill to decode engines."""
    assert fingerprint_of_roles() == interpreted[-1]


def test_each_function_is_compiled_once():
    """Python calls each function with the same types everywhere, even for whole numbers of seconds."""
    prepare()
    engine = DrivenEngine(SMALL, start_seconds=0)
    engine.submit(UserRequest(1, 0, 10, 10), at_seconds=0)
    engine.advance(1)
    engine.sample()
    engine.cancel(1)
    target = service(0)
    target.advance(1)
    target.settle()
    target.scrape(0)
    target.kv_cache_usage(0)
    target.advance(2.5)
    called = [steps.submit, steps.advance, steps.cancel, gateway.run, gateway.change, columns.pointer]
    called += [handover.run_roles, handover.change_roles]
    called += [observed.signals, observed.steps_done, observed.used_now, observed.observe_running]
    assert {function.__name__: len(function.signatures) for function in called if len(function.signatures) != 1} == {}


def test_machine_code_is_kept_under_the_name_of_all_its_sources():
    """The name covers every module with compiled functions, so that no change finds older machine code."""
    uses = {
        path.stem
        for path in HERE.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Name) and decorator.id in {"compiled", "entry"}
    }
    assert "steps" in uses
    assert uses | {"compiled", "counters"} == set(compiled.SOURCES)


def test_machine_code_of_other_sources_does_not_pile_up(monkeypatch, tmp_path):
    """The newest three folders of machine code stay, with the program's own one and all other folders."""
    monkeypatch.setattr(compiled._config, "CACHE_DIR", str(tmp_path))
    own, notes = compiled._directory(), tmp_path / "wva-notes"
    others = [tmp_path / f"wva-{number:016x}" for number in range(5)]
    for age, folder in enumerate((own, notes, *others)):
        (folder / "deeper").mkdir(parents=True)
        os.utime(folder, (age, age))
    compiled.forget_others()
    assert set(tmp_path.iterdir()) == {own, notes, *others[2:]}

"""The parts of the image's assembly that need no network: the lock's closure, bytecode, entry point, bill."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import grimp
import pytest

from image import assemble, bytecode, lock, sbom
from image.launcher import launcher
from wva.serve.console import SCRIPTS

ROOT = Path(__file__).resolve().parents[2]
LOCK = """\
# made by a tool
Alpha_One==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
beta==2.0 ; python_full_version < '3.12' \\
    --hash=sha256:cc
beta==3.0 ; python_full_version >= '3.12' \\
    --hash=sha256:dd
gamma==4.0 \\
    --hash=sha256:ee
"""


def test_the_lock_keeps_all_hashes_and_the_entries_of_every_python():
    """A distribution that Pythons have in different versions has an entry for each."""
    assert lock.subset(LOCK, ["alpha-one", "Beta"]) == LOCK.partition("gamma")[0].partition("\n")[2]


def test_what_is_not_locked_is_an_error():
    """The build installs only locked distributions. The message says how to lock another one."""
    with pytest.raises(lock.LockError, match=r"not in the lock: delta, omega; run python requirements/check\.py"):
        lock.subset(LOCK, ["gamma", "omega", "Delta"])


def test_an_entry_without_a_hash_is_an_error():
    """The build refuses a lock with an entry that has no hash."""
    with pytest.raises(lock.LockError, match="no hash for delta"):
        lock.subset(f"{LOCK}delta==5.0\n", ["gamma"])


def test_the_constraints_carry_versions_and_markers_only():
    """The constraints have no hashes: with one hash pip wants hashes of everything, even while it resolves."""
    assert lock.pins(LOCK).splitlines() == [
        "Alpha_One==1.0",
        "beta==2.0 ; python_full_version < '3.12'",
        "beta==3.0 ; python_full_version >= '3.12'",
        "gamma==4.0",
    ]


def test_the_locked_requirements_are_all_read():
    """Every pin of the real lock is an entry with hashes."""
    text = (ROOT / "requirements" / "constraints.txt").read_text(encoding="utf-8")
    found = lock.entries(text)
    assert sum(map(len, found.values())) == sum("==" in line and not line.startswith("#") for line in text.splitlines())


def test_pip_failing_says_what_it_wrote():
    """The error of a failed build contains pip's output."""
    with pytest.raises(lock.LockError, match=r"(?s)pip install failed.*no-such-option"):
        lock.pip("install", "--no-such-option")


def test_a_directory_with_something_in_it_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The build refuses such a directory, or it would ship the files of an earlier build."""
    (tmp_path / "old").touch()
    assert assemble.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"{tmp_path} is not empty\n"


def test_bytecode_is_found_at_its_prefix_and_has_no_asserts(tmp_path: Path):
    """An interpreter that is pointed there takes it, with the path of the image in it, whatever the source says now."""
    source, into = tmp_path / "lib", tmp_path / "bytecode"
    (source / "part").mkdir(parents=True)
    (source / "part" / "__init__.py").write_text("assert False\nvalue = 1\n", encoding="utf-8")
    (source / "broken.py").write_text("this is {{ a template }}\n", encoding="utf-8")
    jobs = list(bytecode.libraries(source, path=PurePosixPath(source), into=into))
    assert bytecode.compile_all(jobs) == 1
    (source / "part" / "__init__.py").write_text("value = 2\n", encoding="utf-8")
    code = (
        f"import sys; sys.pycache_prefix={str(into)!r}; sys.path.append({str(source)!r});import part; print(part.value)"
    )
    done = subprocess.run([sys.executable, "-ISBOc", code], capture_output=True, text=True, check=False, timeout=240)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_another_standard_library_is_compiled_anew(tmp_path: Path):
    """The interpreter uses bytecode only for the compiled source, so that a fix in the base image takes effect."""
    source = tmp_path / "module.py"
    source.write_text("value = 1\n", encoding="utf-8")
    target = bytecode.cached(PurePosixPath(source), tmp_path / "bytecode")
    bytecode.compile_all([bytecode.Job(source, PurePosixPath(source), target, checked=True)])
    source.write_text("value = 2\n", encoding="utf-8")
    code = (
        f"import sys; sys.pycache_prefix={str(tmp_path / 'bytecode')!r}; sys.path.append({str(tmp_path)!r});"
        "import module; print(module.value)"
    )
    done = subprocess.run([sys.executable, "-ISBOc", code], capture_output=True, text=True, check=False, timeout=240)
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_the_standard_library_is_at_its_own_path(tmp_path: Path):
    """Modules that the controller imports are compiled. Folders that it never imports are not."""
    jobs = {job.path.name: job for job in bytecode.standard_library(tmp_path)}
    assert jobs["selectors.py"].checked
    assert jobs["selectors.py"].target.is_relative_to(tmp_path / jobs["selectors.py"].source.parent.relative_to("/"))
    assert (
        jobs["selectors.py"].target.name == Path(importlib.util.cache_from_source("selectors.py", optimization=1)).name
    )
    assert not {"test_asyncio", "site-packages", "ensurepip"} & {
        part for job in jobs.values() for part in job.path.parts
    }


def test_the_entry_point_takes_nothing_from_outside():
    """The kernel passes one word of flags: isolated, without site, writing no bytecode, optimised."""
    text = launcher(PurePosixPath("/usr/bin/python3"), libraries=assemble.LIBRARIES, bytecode=assemble.BYTECODE)
    first = text.splitlines()[0]
    assert first == "#!/usr/bin/python3 -ISBO"
    compile(text, "manager", "exec")
    assert text.index("pycache_prefix") < text.index("from wva")


def test_the_image_has_of_the_simulator_what_its_commands_run(tmp_path: Path):
    """The emulator and the load generator import each of these modules, and no others of the simulator."""
    graph = grimp.build_graph("wva", cache_dir=None)
    commands = ("wva.sim.commands.emulator", "wva.sim.commands.loadgen")
    used = {name for command in commands for name in graph.find_upstream_modules(command)}
    packages = {"wva.sim", "wva.sim.commands", *commands, "wva.sim.emulator", "wva.sim.loadgen", "wva.sim.fleet"}
    program = tmp_path / "wva"
    assemble.copy_program(program)
    paths = {path.relative_to(tmp_path).with_suffix("") for path in (program / "sim").rglob("*.py")}
    carried = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    assert carried == {name for name in used if name.startswith("wva.sim")} | packages


def test_the_image_has_the_page_of_the_console(tmp_path: Path):
    """Every file of the page, as it is here; it needs nothing from elsewhere."""
    assemble.copy_program(tmp_path / "wva")
    here, there = (
        {path.name: path.read_bytes() for path in folder.glob("wva/serve/assets/*")} for folder in (ROOT, tmp_path)
    )
    assert there == here
    assert here.keys() == {"console.html", "console.css", "console.svg", *[f"{name}.js" for name in SCRIPTS]}


@pytest.mark.parametrize("command", ["run", "emulator", "loadgen"])
def test_the_commands_of_the_image_start_without_the_rest_of_the_simulator(tmp_path: Path, command: str):
    """The commands start in a process that has only the files of the image."""
    assemble.copy_program(tmp_path / "wva")
    code = f"""import sys; sys.path.insert(0, {str(tmp_path)!r})
import wva
assert wva.__file__.startswith({str(tmp_path)!r})
from wva.cli import main
main([{command!r}, "--help"])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: wva {command}")


@pytest.mark.parametrize("command", ["demo", "bench", "backtest", "tune"])
def test_the_commands_that_the_image_has_not_say_so(tmp_path: Path, command: str):
    """Commands that are not in the image say so in one line, with any flags. The help lists them nevertheless."""
    assemble.copy_program(tmp_path / "wva")
    code = f"""import sys; sys.path.insert(0, {str(tmp_path)!r})
from wva.cli import main
sys.exit(main(sys.argv[1:]))"""
    start = [sys.executable, "-c", code]
    done = subprocess.run([*start, command, "--list"], capture_output=True, text=True, check=False, timeout=240)
    told = f"wva: `wva {command}` needs the whole simulator, which is not installed here: in a clone of WVA, "
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{told}pip install '.[bench]'\n")
    done = subprocess.run([*start, "--help"], capture_output=True, text=True, check=False, timeout=240)
    assert f"  {command} " in done.stdout


def test_the_bill_is_a_function_of_what_is_installed(tmp_path: Path):
    """The same folder and time give the same bytes, with licence, home and what depends on what, by marker."""
    distribution(tmp_path, "wva", "1.0", "Requires-Dist: Some.Part>=1", 'Requires-Dist: other; python_version < "3"')
    distribution(tmp_path, "some_part", "2.0", "License-Expression: MIT", "Project-URL: Source, https://example.org/x")
    distribution(tmp_path, "other", "3.0", "Classifier: License :: OSI Approved :: BSD License", "License: UNKNOWN")
    text = sbom.bill(tmp_path, now=datetime(2026, 1, 2, tzinfo=UTC))
    assert text == sbom.bill(tmp_path, now=datetime(2026, 1, 2, tzinfo=UTC))
    bill = json.loads(text)
    assert bill["metadata"]["component"]["version"] == "1.0"
    parts = {item["name"]: item for item in bill["components"]}
    assert parts["some-part"]["licenses"] == [{"license": {"id": "MIT"}}]
    assert parts["some-part"]["externalReferences"][0]["url"] == "https://example.org/x"
    assert parts["other"]["licenses"] == [{"license": {"name": "BSD License"}}]
    graph = {entry["ref"]: entry.get("dependsOn", []) for entry in bill["dependencies"]}
    assert graph["wva==1.0"] == ["some-part==2.0"]


def distribution(folder: Path, name: str, version: str, *lines: str) -> None:
    """Install a distribution that has metadata only."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    head = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
    (info / "METADATA").write_text("\n".join([*head, *lines, ""]), encoding="utf-8")

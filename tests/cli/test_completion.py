"""What a tab completes: commands, flags, values, and in which words of which shell."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module

import pytest

from tests.cli.conftest import ROOT
from tests.cli.test_flags import parsers
from wva.cli import completion
from wva.cli.parser import build_parser


def offered(wva, *words):
    """Return the candidates for the last word, and whether file names may follow."""
    outcome = wva("__complete", *words)
    assert (outcome.status, outcome.err) == (0, "")
    *lines, directive = outcome.out.splitlines()
    assert directive in {":0", ":4"}
    return [line.partition("\t")[0] for line in lines], directive == ":0"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["do"], ["doctor"]),
        (["nothing-like-this"], []),
        (["bench", ""], ["quality"]),
        (["bench", "quality", "--suite", ""], ["quick", "learning", "roles", "full"]),
        (["doctor", "--outp"], ["--output"]),
        (["doctor", "-o", "j"], ["json"]),
        (["doctor", "--output=j"], ["--output=json"]),
        (["doctor", "--output", "=", "j"], ["json"]),  # so bash splits it
        (["doctor", "--output", "="], ["text", "json"]),
        (["doctor", "--context", ""], []),
        (["doctor", "--context", "a", "--leas"], ["--lease"]),
        (["--leader-elect", "f"], ["false"]),  # a manifest leaves the command out
        (["run", "--leader-elect="], ["--leader-elect=true", "--leader-elect=false"]),
        (["run", "--leader-elect", "--enable-h"], ["--enable-http2"]),
        (["completion", "z"], ["zsh"]),
        (["version", ""], ["-h", "--help"]),
    ],
)
def test_what_a_tab_offers(wva, words, found):
    """The words that may stand there and begin so."""
    assert offered(wva, *words) == (found, False)


@pytest.mark.parametrize(
    "words",
    [
        ["replay", ""],
        ["migrate", "a", "b"],
        ["explain", "a/b", "--from", ""],
        ["explain", "--from", "=", "x"],
        ["report", "--html="],
        ["backtest", "--policy", "wva", ""],
    ],
)
def test_where_a_file_may_stand_file_names_are_completed(wva, words):
    """The shell does that itself."""
    assert offered(wva, *words) == ([], True)


def test_every_flag_and_command_is_offered():
    """Nothing has to be written down for the completion."""
    for prog, parser in parsers(build_parser()):
        flags = [flag for action in parser._actions for flag in action.option_strings]
        place = completion.CompletionPlace(parser, "-", None)
        assert [word for word, _ in place.candidates()] == flags, prog


def test_each_candidate_has_its_meaning(wva):
    """Behind a tab, as shells with descriptions want it."""
    assert "doctor\tfind where the chain to the replicas is broken" in wva("__complete", "").out.splitlines()
    assert (
        "--lease\tthe Lease that the leader holds (default: 72dd1cf1.llm-d.ai)" in wva("__complete", "doctor", "-").out
    )


def test_bash_completes(wva, environment, tmp_path):
    """The script calls the program that is completed, and takes its answer."""
    program = tmp_path / "wva"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m wva "$@"\n')
    program.chmod(0o755)
    script = wva("completion", "bash").out + "\n".join(
        [
            f"COMP_WORDS=({program} doctor --output = j) COMP_CWORD=4",
            "_wva",
            'printf "%s\\n" "${COMPREPLY[@]}"',
            "complete -p wva",
        ]
    )
    done = subprocess.run(  # noqa: S603 - our own script
        ["/bin/bash", "-euo", "pipefail", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("json\ncomplete -F _wva wva\n", "", 0)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(wva, shell):
    """It asks the program, so it fits every later version."""
    outcome = wva("completion", shell)
    assert outcome.status == 0
    assert " __complete " in outcome.out
    assert "--output" not in outcome.out


def test_a_shell_that_is_unknown(wva):
    """The error names the shells."""
    outcome = wva("completion", "bsh")
    assert outcome.status == 2
    assert "none of bash, zsh, fish (did you mean bash?)" in outcome.err


def test_kubectl_finds_the_plugin_and_its_completion(capsys, monkeypatch):
    """Kubectl runs kubectl-wva for `kubectl wva`, and asks kubectl_complete-wva at a tab."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-wva"] == scripts["wva"]
    module, _, name = scripts["kubectl_complete-wva"].partition(":")
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-wva", "doct"])
    assert getattr(import_module(module), name)() == 0
    assert capsys.readouterr().out == "doctor\tfind where the chain to the replicas is broken\n:4\n"

"""The flags of the original: which WVA accepts, which it refuses, and what the help says."""

from __future__ import annotations

import shlex

import pytest

from wva.cli.flags import expand_booleans, given_flags
from wva.cli.parser import build_parser
from wva.config import Settings
from wva.config.declare import declarations

FIELDS = declarations(Settings)
FLAGS = [(name, flag) for name, origin in FIELDS.items() for flag in origin.flags]
BOOLEANS = [flag for name, flag in FLAGS if FIELDS[name].metavar == "BOOL"]


def given(*words):
    """Return the flags of ``wva run`` as the settings get them."""
    return given_flags(build_parser().parse_args(expand_booleans(["run", *words])))


def dashed(flag):
    """Return a flag as it is typed."""
    return f"-{flag}" if len(flag) == 1 else f"--{flag}"


@pytest.mark.parametrize(("name", "flag"), FLAGS)
def test_every_flag_and_its_other_spelling_gives_its_setting(name, flag):
    """The value may follow an equals sign or be the next word."""
    assert given(f"{dashed(flag)}=1") == {name: "1"}
    if flag not in BOOLEANS:
        assert given(dashed(flag), "1") == {name: "1"}


def test_the_verbosity_may_have_two_dashes():
    """The flag has one dash or two, as with pflag, because manifests have both."""
    assert given("-v=4") == given("--v=4") == given("--v", "4") == given("-v", "4") == {"verbosity": "4"}


def test_a_flag_that_was_not_given_is_absent():
    """The parser sets no defaults, because they would override the environment."""
    assert given() == {}


@pytest.mark.parametrize("flag", BOOLEANS)
def test_a_bare_boolean_means_true(flag):
    """``--leader-elect`` alone switches the setting on."""
    assert list(given(f"--{flag}").values()) == ["true"]


def test_a_boolean_can_be_switched_off():
    """Manifests write ``--leader-elect=false``."""
    assert given("--leader-elect=false") == {"leader_elect": "false"}


def test_a_bare_boolean_does_not_swallow_the_next_word():
    """A flag after a bare boolean keeps its value."""
    assert given("--leader-elect", "--watch-namespace", "llm") == {"leader_elect": "true", "watch_namespace": "llm"}


@pytest.mark.parametrize("flag", BOOLEANS)
@pytest.mark.parametrize("word", ["true", "false"])
def test_a_boolean_may_be_the_next_word(flag, word):
    """``--leader-elect false`` means what it says, also between other flags."""
    assert expand_booleans(["-v", "4", f"--{flag}", word, "--watch-namespace", word]) == [
        "-v", "4", f"--{flag}={word}", "--watch-namespace", word,
    ]  # fmt: skip


def test_the_next_word_is_the_value_of_a_boolean():
    """As with an equals sign, and in every spelling that a boolean has."""
    assert given("--leader-elect", "false") == {"leader_elect": "false"}
    assert given("--leader-elect", "True", "--metrics-secure", "0") == {"leader_elect": "True", "metrics_secure": "0"}


@pytest.mark.parametrize("words", [("maybe",), ("",), ("true", "false"), ("2",)])
def test_a_word_after_a_boolean_that_is_none_is_refused(wva, words):
    """The command takes no words, so one that is no value of a flag is a usage error that names it."""
    outcome = wva("run", "--leader-elect", *words)
    assert outcome.status == 2
    assert f"unrecognized arguments: {words[-1]}" in outcome.err


def test_a_boolean_takes_no_second_word():
    """The value of ``--flag=VALUE`` is there already."""
    with pytest.raises(SystemExit):
        given("--leader-elect=true", "false")


def test_the_last_of_several_values_wins():
    """Manifests append a flag to override an earlier one."""
    assert given("--watch-namespace=a", "--watch-namespace=b") == {"watch_namespace": "b"}


def test_an_empty_value_is_a_value():
    """``--watch-namespace=`` overrides the environment with an empty value."""
    assert given("--watch-namespace=") == {"watch_namespace": ""}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--leader-elct", "--leader-elect"),
        ("--metrics-bind-adress=:8443", "--metrics-bind-address"),
        ("--watch-namespaces=x", "--watch-namespace"),
    ],
)
@pytest.mark.parametrize("command", [(), ("run",)])
def test_an_unknown_flag_ends_with_status_2_and_names_the_nearest(wva, command, typed, meant):
    """The error is one line on stderr, with or without the word ``run``."""
    outcome = wva(*command, typed)
    assert outcome.status == 2
    assert outcome.out == ""
    (line,) = outcome.err.splitlines()
    assert typed.partition("=")[0] in line
    assert f"did you mean {meant}?" in line


def test_a_flag_like_nothing_points_to_the_help(wva):
    """The error suggests no flag where none is similar."""
    outcome = wva("--zzzzqqqq")
    assert outcome.status == 2
    assert "--help" in outcome.err


def test_an_abbreviated_flag_is_unknown(wva):
    """If abbreviations worked, a flag added later could change the meaning of a manifest."""
    assert wva("run", "--watch-name=x").status == 2


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("rum",), "run"),
        (("doctr", "a/b"), "doctor"),
        (("explane",), "explain"),
        (("emulater", "--port"), "emulator"),
    ],
)
def test_an_unknown_command_names_the_nearest(wva, typed, meant):
    """The error is one line on stderr that names all commands and the nearest one."""
    outcome = wva(*typed)
    assert (outcome.status, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert line.startswith(f"wva: error: argument COMMAND: {typed[0]!r} is none of run, config, demo, ")
    assert line.endswith(f"(did you mean {meant}?)")


def test_a_command_like_nothing_points_to_the_help(wva):
    """The error names the commands, and suggests none where none is similar."""
    outcome = wva("zzzz")
    assert outcome.status == 2
    assert outcome.err.endswith("(see wva --help)\n")


def test_a_value_that_is_no_choice_names_the_nearest(wva):
    """As a flag does."""
    outcome = wva("doctor", "--output", "jsn")
    assert outcome.status == 2
    assert outcome.err == "wva doctor: error: argument --output/-o: 'jsn' is none of text, json (did you mean json?)\n"


@pytest.mark.parametrize(
    "words",
    [
        ("config",),
        ("decide", "FILE"),
        ("doctor",),
        ("explain", "ns/a"),
        ("loadgen", "--model", "m", "--rate", "[[1, 1]]"),
        ("migrate",),
        ("replay", "DIR"),
        ("report", "--shadow", "--from", "DIR"),
    ],
)
def test_there_is_one_way_to_ask_for_json(words):
    """Every command that answers takes ``--output json`` and ``-o json``."""
    parser = build_parser(words[0])
    for asked in (("--output", "json"), ("-o", "json"), ("-ojson",)):
        assert parser.parse_args([*words, *asked]).output == "json"
    assert parser.parse_args(words).output in {"text", "json"}
    with pytest.raises(SystemExit):
        parser.parse_args([*words, "--json"])


@pytest.mark.usefixtures("log_as_before")
@pytest.mark.parametrize(
    "words",
    [
        ("explain", "chat"),
        ("explain", "ns/chat", "--from", "-", "--at", "yesterday"),
        ("doctor", "chat"),
        ("doctor", "ns/chat", "more"),
        ("demo", "--scenario", "nothing"),
        ("demo", "--for", "soon"),
        ("demo", "--for", "0s"),
        ("demo", "--speed", "0"),
        ("demo", "--headless", "--web", "0.0.0.0:1"),
        ("report", "--shadow", "--prometheus", "nowhere"),
        ("backtest", "--prometheus", "nowhere", "--from", "now-1h", "--to", "now"),
        ("tune", "--prometheus", "http://127.0.0.1:1"),
        ("bench", "quality", "--scenario", "nothing"),
        ("version", "--short"),
        ("crd", "more"),
    ],
)
def test_every_wrong_usage_has_status_2(wva, words, monkeypatch):
    """What no cluster and no file can mend is a wrong usage, and one line of stderr says what is expected."""
    monkeypatch.setattr("wva.cli.explain.read_all", lambda _: [])
    outcome = wva(*words)
    assert (outcome.status, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert line.startswith("wva")


def test_a_flag_without_its_value_ends_with_status_2(wva):
    """The error names the flag."""
    outcome = wva("run", "--watch-namespace")
    assert outcome.status == 2
    assert "--watch-namespace" in outcome.err


@pytest.mark.parametrize("command", [(), ("run",), ("demo",), ("decide",), ("crd",), ("version",)])
def test_every_command_explains_itself(wva, command):
    """``--help`` ends with status 0 and prints to stdout only."""
    outcome = wva(*command, "--help")
    assert outcome.status == 0
    assert outcome.err == ""
    assert "usage: wva" in outcome.out


@pytest.mark.parametrize(("name", "flag"), FLAGS)
def test_the_help_of_run_describes_every_flag(wva, name, flag):
    """The help has each flag, its meaning, and the other places where it can be set."""
    text = " ".join(wva("run", "--help").out.split())
    assert f"{dashed(flag)} " in text
    description = declarations(Settings)[name].meaning
    assert description
    assert " ".join(description.split()) in text
    if FIELDS[name].places and not FIELDS[name].no_effect:
        assert ", ".join(FIELDS[name].keys) in text


def test_no_command_prints_the_help(wva):
    """``wva`` alone prints the help and ends with status 0."""
    outcome = wva()
    assert outcome.status == 0
    assert all(word in outcome.out for word in ("run", "demo", "decide", "crd", "version"))


def parsers(parser):
    """Yield a parser and those of its commands, by what one types to get there."""
    yield parser.prog, parser
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for below in action.choices.values():
                yield from parsers(below)


def test_every_help_has_examples_that_parse():
    """The lines are command lines of this command; other commands of a pipe are not looked at."""
    whole = build_parser()
    for prog, parser in parsers(whole):
        (paragraph,) = [part for part in parser.format_help().split("\n\n") if part.startswith("examples:\n")]
        lines = paragraph.splitlines()[1:]
        assert lines
        for line in lines:
            (words,) = [words for words in split_at_pipes(shlex.split(line)) if "wva" in words]
            words = words[words.index("wva") + 1 :]
            assert " ".join(["wva", *words]).startswith(prog)
            whole.parse_args(expand_booleans(words))


def split_at_pipes(words):
    """Return the commands of a line of shell, without the file that takes the output."""
    commands = [[]]
    for word in words:
        if word == ">":
            break
        if word == "|":
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def test_the_help_of_run_begins_with_what_is_required():
    """Then come the flags in groups, those without an effect last, and none is left over."""
    for command in ("run", "config"):
        parser = dict(parsers(build_parser(command)))[f"wva {command}"]
        text = parser.format_help()
        assert text.startswith(f"usage: wva {command} [FLAG ...]\n")
        titles = ["required", "where it listens:", "who leads:", "the API server:", "accepted for compatibility"]
        places = [text.index(f"\n{title}") for title in titles]
        assert places == sorted(places)
        assert text.index("PROMETHEUS_BASE_URL=") < places[1]
        assert all(FIELDS[name].group for name, _ in FLAGS)
        useless = [FIELDS[name].flags[0] for name, _ in FLAGS if FIELDS[name].no_effect]
        assert useless
        assert all(text.index(f"  --{flag} ") > places[-1] for flag in useless)

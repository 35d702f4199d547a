"""The log lines that WVA writes to stderr."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from wva import log
from wva.config import Inputs, load
from wva.config.load import LiveSettings
from wva.log import MAX_VALUE_CHARACTERS, tame

SECRET = "hunter2"


@pytest.fixture
def lines(capsys):
    """Return a function that sets up logging and returns the parsed lines written since."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def configure(level="info"):
        log.configure(level=level, encoding="json")

        def read():
            captured = capsys.readouterr()
            assert captured.out == ""
            return [json.loads(line) for line in captured.err.splitlines()]

        return read

    yield configure
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_is_json_with_time_level_and_component(lines):
    """WVA writes one object per line, and nothing to stdout."""
    read = lines()
    log.get("x").info("thing_happened", count=3)
    (line,) = read()
    assert line["ts"].endswith("Z")
    del line["ts"]
    assert line == {"event": "thing_happened", "level": "info", "component": "x", "count": 3}


def test_the_searches_of_the_configuration_guide_find_their_lines(lines, capsys):
    """The guide of v0.5.0 pipes the log through ``grep``, so the words stand before the fields and the component."""
    lines()
    scene = {"GLOBAL_OPT_INTERVAL": "60s", "PROMETHEUS_BASE_URL": "https://a"}
    given = Inputs({}, {}, scene)
    live = LiveSettings(load(given).settings, given, set_level=lambda _: None)
    live.take({"GLOBAL_OPT_INTERVAL": "120s", "PROMETHEUS_BASE_URL": "https://b"})
    interval, refused = capsys.readouterr().err.splitlines()
    assert re.search("Updated.*config", interval)
    assert re.search("Updated optimization interval.*60s.*120s", interval)
    assert "Attempted to change immutable parameters" in refused
    assert re.search("config|validation|error", refused, re.IGNORECASE)


@pytest.mark.parametrize(
    ("level", "seen"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warn", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_the_level_counts(lines, level, seen):
    """Lines below the configured level are not written."""
    read = lines(level)
    logger = log.get("x")
    for method in (logger.debug, logger.info, logger.warning, logger.error):
        method("said")
    assert [line["level"] for line in read()] == seen


def test_a_changed_level_applies_to_loggers_there_already_are(lines):
    """The ConfigMap, which sets the level, is read after the first lines are written."""
    logger = log.get("x")
    read = lines("error")
    logger.info("first")
    lines("info")
    logger.info("second")
    assert [line["event"] for line in read()] == ["second"]


@pytest.mark.parametrize(
    "key",
    ["token", "bearer_token", "PROMETHEUS_BEARER_TOKEN", "password", "client_secret", "Authorization", "private_key"],
)
def test_secrets_are_masked_by_the_name_of_their_field(lines, key):
    """The name of the field is enough, whichever logger writes it."""
    read = lines()
    log.get("x").info("said", **{key: SECRET})
    (line,) = read()
    assert line[key] == "***"


@pytest.mark.parametrize("value", [{"token": SECRET}, [{"token": SECRET}], {"a": {"password": SECRET}}])
def test_secrets_inside_of_values_are_masked(lines, value):
    """The value of a secret key is masked in dictionaries and lists, too."""
    read = lines()
    log.get("x").info("said", headers=value)
    assert SECRET not in json.dumps(read())


@pytest.mark.parametrize(
    ("key", "value"), [("token_path", "/var/token"), ("tokens", 5), ("token", True), ("key", "a/b")]
)
def test_what_is_no_secret_stays(lines, key, value):
    """Paths of secrets, counts of tokens and keys of objects are written as they are."""
    read = lines()
    log.get("x").info("said", **{key: value})
    assert read()[0][key] == value


def test_long_values_are_cut(lines):
    """A long text is cut wherever it is: in a field, in a list or in a dictionary."""
    read = lines()
    log.get("x").info("said", text="x" * 100_000, items=["y" * 100_000], fields={"z": "z" * 100_000})
    (line,) = read()
    assert line["text"] == "x" * MAX_VALUE_CHARACTERS + "..."
    assert len(json.dumps(line)) < 4 * MAX_VALUE_CHARACTERS


def test_line_ends_stay_inside_their_line(lines):
    """A name from outside the process cannot forge a line."""
    read = lines()
    log.get("x").info("said", name='a\n{"event": "forged"}')
    (line,) = read()
    assert line["name"] == 'a\n{"event": "forged"}'


def test_what_json_does_not_know_is_written_as_text(lines):
    """Logging such a value raises no exception."""
    read = lines()
    log.get("x").info("said", thing=object(), keys={1, 2}, raw=b"\xff", nan=float("nan"))
    assert read()[0]["event"] == "said"


def test_an_exception_has_its_traceback(lines):
    """The whole traceback is in one field of the line."""
    read = lines()
    try:
        int("broken")
    except ValueError:
        log.get("x").exception("failed")
    (line,) = read()
    assert "ValueError: invalid literal" in line["exception"]
    assert line["level"] == "error"


def test_libraries_write_the_same_lines(lines):
    """Lines of the standard library's loggers from warning on are written, with the name of the logger."""
    read = lines()
    logging.getLogger("aiohttp.server").warning("odd %s", "request")
    logging.getLogger("aiohttp.access").info("noise")
    (line,) = read()
    assert (line["event"], line["level"], line["logger"]) == ("odd request", "warning", "aiohttp.server")
    assert "ts" in line


def test_errors_of_libraries_have_their_traceback(lines):
    """In this way asyncio reports the exception of a task that no code awaited."""
    read = lines()
    try:
        int("broken")
    except ValueError:
        logging.getLogger("asyncio").exception("lost")
    assert "ValueError: invalid literal" in read()[0]["exception"]


def test_the_console_form_is_for_people(capsys, lines):
    """The text has no colours, because it may go to a file."""
    lines()
    log.configure(level="info", encoding="console")
    log.get("x").info("thing_happened", count=3)
    text = capsys.readouterr().err
    assert "thing_happened" in text
    assert "count=3" in text
    assert "\x1b" not in text


def test_the_end_of_the_process_is_silent():
    """The stream may go after the names of its module have gone, and must not need them.

    Python 3.13 tells the errors of finalizers; before, ``-X dev`` does.
    """
    program = (
        "import structlog; from wva import log; log.configure(level='error', encoding='console'); "
        "vars(log).update(dict.fromkeys(vars(log))); structlog.reset_defaults()"
    )
    words = [sys.executable, "-X", "dev", "-c", program]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)  # noqa: S603 - our own code
    assert ended.stderr == ""


values = st.recursive(
    st.none() | st.integers() | st.text(max_size=3000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=10), values, max_size=4))
def test_nothing_short_and_harmless_is_changed(fields):
    """Masking and cutting leave everything else as it was."""
    shown = tame(None, "", dict(fields))
    assert shown.keys() == fields.keys()
    for key, value in fields.items():
        if isinstance(value, str) and not any(word in key.lower() for word in ("token", "secret", "password")):
            assert shown[key] == (value if len(value) <= MAX_VALUE_CHARACTERS else value[:MAX_VALUE_CHARACTERS] + "...")


@given(st.text(st.characters()))
def test_whatever_does_not_print_is_written_out(text):
    """Escapes for controls, line ends, direction marks and lone surrogates make the text one printable line."""
    shown = log.printable(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()


def test_the_level_can_change_while_the_process_runs(lines):
    """The new level applies to loggers that exist already, and to those of libraries."""
    read = lines("info")
    ours, library = log.get("x"), logging.getLogger("some.library")
    for level in ("error", "debug", "info"):
        log.set_level(level)
        ours.debug(f"{level} debug")
        ours.warning(f"{level} warning")
        library.warning("%s warning of a library", level)
    assert [line["event"] for line in read()] == [
        "debug debug",
        "debug warning",
        "debug warning of a library",
        "info warning",
        "info warning of a library",
    ]


def test_the_same_words_about_the_same_thing_are_written_once_in_a_while():
    """The throttle permits the same line again after a minute, or when the clock was set back."""
    throttle = log.Throttle(60)
    assert [throttle.permits("a", words, now) for words, now in (("x", 0), ("x", 59), ("y", 59), ("x", 59))] == [
        True,
        False,
        True,
        False,
    ]
    assert throttle.permits("b", "x", 59)
    assert throttle.permits("a", "x", 60)
    assert throttle.permits("a", "x", 1)


def test_lines_about_very_many_things_have_a_limit_together():
    """The throttle permits ten lines about all things together, and ten more once those are old."""
    throttle = log.Throttle(60, most=10)
    assert sum(throttle.permits(thing, "x", 0) for thing in range(1000)) == 10
    assert sum(throttle.permits(thing, "x", 61) for thing in range(1000)) == 10


def test_a_traceback_keeps_both_its_ends(lines):
    """Its length has a limit, however long the text of the exception is."""
    read = lines("info")
    log.get("x").error("failed", exc_info=ValueError("x" * 10**6))
    (line,) = read()
    assert line["exception"].startswith("ValueError: xxx")
    assert line["exception"].endswith("xxx")
    assert len(line["exception"]) < 10_000


def test_threads_may_ask_at_the_same_time():
    """A cycle notes faults in a thread while the event loop notes others."""
    throttle, seconds, interval = log.Throttle(1.0, most=50), 0.1, sys.getswitchinterval()

    def ask(number):
        for count in range(20_000):
            throttle.permits((number, count), "failed", count * seconds)

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(ask, range(4))) == [None] * 4
    finally:
        sys.setswitchinterval(interval)

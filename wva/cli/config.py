"""``wva config``: every setting as ``wva run`` would have it with the same flags, environment and cluster.

The main ConfigMap is read once. When the cluster does not answer, what flags and environment give is shown and the
reason said. Exit status 1 and one line per reason when ``wva run`` would refuse to start.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal, NamedTuple

from prometheus_client import CollectorRegistry

from wva.api.meta import Key
from wva.app import election_problems
from wva.cli.first_read import Unread, read_once
from wva.cli.flags import fail, given_flags
from wva.config import Given, Loaded, Settings, fatal_problems, load
from wva.config.load import SettingInForce, describe, unknown_keys
from wva.config.prometheus import PrometheusSettings
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.errors import ConfigurationError
from wva.model.records import replace

_CONNECT_SECONDS = 10.0


class _Read(NamedTuple):
    """What is known of the main ConfigMap; ``reason`` says why it is unknown."""

    state: Literal["read", "absent", "unknown"]
    data: Mapping[str, str]
    reason: str = ""


def run(arguments: argparse.Namespace) -> int:
    """Print the settings and return the exit status."""
    given = Given(given_flags(arguments), dict(os.environ), {})
    before = load(given).settings
    key = Key(before.pod_namespace, before.config_map_name)
    found = asyncio.run(_read(before, key))
    given = replace(given, config_map=found.data)
    loaded = load(given)
    show = _show_json if arguments.json else _show_table
    show(loaded, key, found)
    # While the ConfigMap is unknown, missing settings cannot be told.
    problems = _problems(loaded, given) if found.state != "unknown" else []
    for problem in problems:
        fail(problem)
    return 1 if problems else 0


async def _read(settings: Settings, key: Key) -> _Read:
    instruments = Instruments(CollectorRegistry())
    timeout_seconds = min(settings.rest_client_timeout, _CONNECT_SECONDS)
    try:
        async with KubeClient.connect(instruments=instruments, timeout_seconds=timeout_seconds) as client:
            data = await read_once(client, key)
    except (ConfigurationError, Unread) as error:
        return _Read("unknown", {}, str(error))
    return _Read("absent", {}) if data is None else _Read("read", data)


def _problems(loaded: Loaded, given: Given) -> list[str]:
    problems = fatal_problems(loaded, given)
    if loaded.settings.prometheus_base_url:
        problems += PrometheusSettings.of(loaded.settings).problems()  # the files are those of the pod
    return problems + election_problems(loaded.settings)


def _notes(loaded: Loaded, found: _Read) -> list[str]:
    """Return what could not be used, one line each."""
    told = [str(problem) for problem in loaded.problems if not problem.fatal]
    unknown = [f"{key} (configmap): no such setting" for key in unknown_keys(found.data)]
    return [*told, *loaded.without_effect, *unknown]


def _show_json(loaded: Loaded, key: Key, found: _Read) -> None:
    answer: dict[str, Any] = {
        "configMap": {"name": str(key), "state": found.state, **({"reason": found.reason} if found.reason else {})},
        "settings": [asdict(entry) for entry in describe(loaded)],
        "notes": _notes(loaded, found),
    }
    json.dump(answer, sys.stdout, indent=2)
    sys.stdout.write("\n")


def _show_table(loaded: Loaded, key: Key, found: _Read) -> None:
    rows = [("SETTING", "VALUE", "SOURCE", "CHANGES APPLY"), *(map(_row, describe(loaded)))]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)]
        print("  ".join([*cells, row[3]]))
    state = {"read": "read", "absent": "there is none", "unknown": f"not read: {found.reason}"}[found.state]
    print(f"\nmain ConfigMap {key}: {_printable(state)}")
    for note in _notes(loaded, found):
        print(f"note: {_printable(note)}")


def _row(entry: SettingInForce) -> tuple[str, str, str, str]:
    applies = "live" if entry.applies == "live" else "at start"
    return entry.name, _printable(entry.value) or "-", entry.source, applies


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)

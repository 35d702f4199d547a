"""``wva config``: every setting as ``wva run`` would have it with the same flags, environment and cluster.

When the cluster does not answer, the command shows the settings from flags and environment, and the error.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from prometheus_client import CollectorRegistry

from wva.api.meta import Key
from wva.app import election_problems
from wva.cli.cluster import advice
from wva.cli.flags import add_settings_flags, given_flags
from wva.cli.run import UnreadError, read_once
from wva.command_error import CommandError
from wva.command_line import add_output, print_json
from wva.config import Inputs, fatal_problems, load
from wva.config.load import describe, unknown_keys
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.errors import ConfigurationError
from wva.model.records import replace
from wva.prometheus.settings import PrometheusSettings

_CONNECT_SECONDS: Final = 10.0
EXAMPLES: Final = (
    "wva config",
    "wva config --output json --metrics-bind-address=:8443 --leader-elect",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the form of the answer and the flags of all settings."""
    parser.description = (
        "Print what `wva run` would have in force with the same flags, environment and cluster: each setting, its "
        "value, its source (flag, environment, configmap, default) and whether a change of the main ConfigMap applies "
        "live or at the next start. Secrets are masked."
    )
    parser.epilog = (
        "Exit status: 0, 1 when `wva run` would refuse to start, 2 on a wrong flag, 3 when the main ConfigMap could "
        "not be read, so that other values may be in force."
    )
    add_output(parser)
    add_settings_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the settings and return the status. Raises CommandError with each reason why ``wva run`` does not start."""
    inputs = Inputs(given_flags(arguments), dict(os.environ), {})
    settings = load(inputs).settings
    key = Key(settings.pod_namespace, settings.config_map_name)

    async def read() -> Mapping[str, str] | None:
        timeout = min(settings.rest_client_timeout, _CONNECT_SECONDS)
        async with KubeClient.connect(instruments=Instruments(CollectorRegistry()), timeout_seconds=timeout) as client:
            return await read_once(client, key)

    data: Mapping[str, str] | None = None
    state, reason = "unknown", ""
    try:
        data = asyncio.run(read())
        state = "absent" if data is None else "read"
    except (ConfigurationError, UnreadError) as error:
        reason = f"{error}; {advice(error.__cause__ if isinstance(error, UnreadError) else error)}"
    inputs = replace(inputs, config_map=data or {})
    loaded = load(inputs)
    entries = describe(loaded)
    notes = [str(problem) for problem in loaded.problems if not problem.fatal]
    notes += loaded.without_effect
    notes += (f"{unknown} (configmap): no such setting" for unknown in unknown_keys(inputs.config_map))

    if arguments.output == "json":
        config_map = {"name": str(key), "state": state} | ({"reason": reason} if reason else {})
        answer = {"configMap": config_map, "settings": [asdict(entry) for entry in entries], "notes": notes}
        print_json(answer)
    else:
        rows = [("SETTING", "VALUE", "SOURCE", "CHANGES APPLY")]
        applies = {"live": "live", "start": "at start"}
        rows += [
            (entry.name, _printable(entry.value) or "-", entry.source, applies[entry.applies]) for entry in entries
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        state_text = {"read": "read", "absent": "there is none", "unknown": f"not read: {reason}"}[state]
        print(f"\nmain ConfigMap {key}: {_printable(state_text)}")
        for note in notes:
            print(f"note: {_printable(note)}")

    problems = fatal_problems(loaded, inputs, may_have_more=state == "unknown")
    if loaded.settings.prometheus_base_url:
        problems += PrometheusSettings.of(loaded.settings).problems()  # the files are those of the pod
    problems += election_problems(loaded.settings)
    if problems:
        raise CommandError("\n".join(problems))
    return 3 if state == "unknown" else 0


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)

"""Which sub-command to run.

``wva`` followed by a flag is ``wva run``: manifests written for the original image start it with flags only.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from wva import __version__
from wva.cli.parser import SEEDS, WORKERS, Parser, whole

_DESCRIPTION: Final = (
    "Workload Variant Autoscaler: decides how many replicas each variant of an LLM service should have, "
    "so that the load is served at the lowest cost."
)
_HELP_FLAGS: Final = ("-h", "--help", "--version")
_WITH_SETTINGS: Final = (["run"], ["config"])
_SIGPIPE_STATUS: Final = 141
"""What a shell reports of a program whose reader went away: 128 and the number of SIGPIPE."""


def build_parser(*, settings: bool = True) -> Parser:
    """Return the parser of all sub-commands; without ``settings`` those of the controller are missing."""
    parser = Parser(prog="wva", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"wva {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    run = commands.add_parser(
        "run",
        help="run the controller against a cluster",
        description="Run the controller. The cluster is KUBECONFIG, else the one it runs in, else ~/.kube/config.",
        epilog="Every setting may also come from the environment or the main ConfigMap; flags win. See "
        "docs/configuration.md. Exit status: 0 after SIGTERM, 1 when it could never work, 2 on a wrong flag.",
        allow_abbrev=False,
    )
    config = commands.add_parser(
        "config",
        help="print every setting with its value and source",
        description="Print what `wva run` would have in force with the same flags, environment and cluster: each "
        "setting, its value, its source (flag, environment, configmap, default) and whether a change of the main "
        "ConfigMap applies live or at the next start. Secrets are masked.",
        epilog="Exit status: 0, 1 when `wva run` would refuse to start, 2 on a wrong flag.",
        allow_abbrev=False,
    )
    config.add_argument("--json", action="store_true", help="print JSON")
    if settings:
        from wva.cli.flags import add_settings_flags  # noqa: PLC0415 - slow to import, and only two commands need it

        add_settings_flags(run)
        add_settings_flags(config)
    _add_demo(commands.add_parser("demo", help="run the controller on an embedded world", allow_abbrev=False))
    decide = commands.add_parser(
        "decide",
        help="print the decisions of a recorded cycle",
        description="Read a recording (made with --record-dir) and print its decisions as JSON.",
        allow_abbrev=False,
    )
    decide.add_argument("file", metavar="FILE", help="the recording; - reads standard input")
    decide.add_argument("--explain", action="store_true", help="every step from the analyzer to the number, in words")
    _add_replay(commands.add_parser("replay", help="replay recorded cycles", allow_abbrev=False))
    _add_backtest(commands.add_parser("backtest", help="try policies on your own traffic", allow_abbrev=False))
    _add_tune(commands.add_parser("tune", help="propose thresholds for your own traffic", allow_abbrev=False))
    _add_emulator(commands.add_parser("emulator", help="serve as one vLLM replica without a GPU", allow_abbrev=False))
    _add_loadgen(commands.add_parser("loadgen", help="send requests at a rate and measure them", allow_abbrev=False))
    _add_bench(commands.add_parser("bench", help="judge decisions in a simulated world", allow_abbrev=False))
    _add_migrate(commands.add_parser("migrate", help="say what to change before the swap", allow_abbrev=False))
    commands.add_parser("crd", help="print the CustomResourceDefinition as YAML", allow_abbrev=False)
    commands.add_parser("version", help="print the version", allow_abbrev=False)
    return parser


def _add_demo(demo: Parser) -> None:
    demo.description = (
        "Run the unmodified controller against an embedded Kubernetes API, Prometheus, HPA and vLLM fleet, all in this "
        "process and in virtual time, and watch it scale. Needs the demo extra: in a clone of WVA, pip install "
        "'.[demo]'."
    )
    demo.add_argument("--scenario", default="quickstart", metavar="NAME", help="what happens (default: quickstart)")
    demo.add_argument("--list", action="store_true", help="list the scenarios and exit")
    demo.add_argument("--for", dest="duration", metavar="DURATION", help="virtual time to run, such as 2h")
    demo.add_argument("--speed", default=None, metavar="N|max", help="virtual seconds per second, or max")
    demo.add_argument("--headless", action="store_true", help="no live view, only the summary; so without a terminal")
    demo.add_argument("--json", dest="json_file", type=Path, metavar="FILE", help="write timelines and summary")
    demo.add_argument(
        "--openmetrics", dest="openmetrics_file", type=Path, metavar="FILE", help="write every sample, for promtool"
    )
    demo.add_argument("--record-dir", metavar="DIR", help="record the newest 100 cycles, for `wva replay`")
    demo.add_argument("--seed", type=int, default=1, metavar="N", help="a run is a function of its seed (default: 1)")


def _add_replay(replay: Parser) -> None:
    replay.description = (
        "Decide again on cycles that `wva run` or `wva demo` recorded with --record-dir. Without --policy the "
        "decisions are compared with the recorded ones, bit for bit; those of an older version need not be the same, "
        "and the report says what differs and why. With --policy the report says what the ConfigMaps of a file would "
        "have decided."
    )
    replay.epilog = "Exit status: 0, 1 when something cannot be read or a decision differs, 2 on a wrong flag."
    replay.add_argument("path", metavar="DIR|FILE", help="a folder of recordings, or one; - reads standard input")
    replay.add_argument("--policy", metavar="FILE", help="ConfigMaps in YAML, as in a cluster")
    replay.add_argument("--output", choices=["text", "json"], default="text", help="what to print (default: text)")


def _add_backtest(backtest: Parser) -> None:
    backtest.description = (
        "Read the history of a model from Prometheus, fit simulated engines to it, and run policies on the same "
        "traffic. Writes a page with plots, and a summary. Needs the bench extra: in a clone of WVA, pip install "
        "'.[bench]'."
    )
    backtest.epilog = (
        "A token and certificates for Prometheus are taken from the environment, as by `wva run`: "
        "PROMETHEUS_BEARER_TOKEN, PROMETHEUS_TOKEN_PATH, PROMETHEUS_CA_CERT_PATH and so on. What was read is kept in "
        "the folder, and the same command goes on where it was interrupted. Exit status: 0, 1 when it cannot be done, "
        "2 on a wrong flag."
    )
    _add_history(backtest, required=True)
    backtest.add_argument(
        "--policy",
        nargs="+",
        action="extend",
        metavar="NAME|FILE",
        help="policies by name, or WVA with the ConfigMaps of a file (default: wva, wva-queueing, hpa-kv, static-peak, "
        "clairvoyant)",
    )


def _add_tune(tune: Parser) -> None:
    tune.description = (
        "Try thresholds of WVA on the history of a backtest, and propose those with the lowest cost that serve enough "
        "requests in time. Run it after `wva backtest` in the same folder, or give it the flags of that command. Needs "
        "the bench extra."
    )
    tune.epilog = "Exit status: 0, 1 when it cannot be done, 2 on a wrong flag."
    _add_history(tune, required=False)


def _add_history(parser: Parser, *, required: bool) -> None:
    """Add what names a history and how it is played."""
    parser.add_argument("--prometheus", required=required, metavar="URL", help="Prometheus with the history")
    parser.add_argument(
        "--from",
        dest="start",
        required=required,
        metavar="TIME",
        help="start of the history: ISO 8601, Unix seconds, or such as now-2h",
    )
    parser.add_argument(
        "--to", dest="end", required=required, metavar="TIME", help="end of the history: as --from, or now"
    )
    parser.add_argument(
        "--namespace", "-n", default="", metavar="NAME", help="namespace of the model (default: the only one)"
    )
    parser.add_argument(
        "--model", default="", metavar="ID", help="model, as vLLM has it in model_name (default: the only one)"
    )
    parser.add_argument(
        "--step", default="30s", metavar="DURATION", help="distance of two points of the history (default: 30s)"
    )
    parser.add_argument("--out", default="backtest", metavar="DIR", help="folder for all files (default: backtest)")
    parser.add_argument(
        "--ttft", default="1s", metavar="DURATION", help="objective for the time to first token (default: 1s)"
    )
    parser.add_argument(
        "--itl", default="100ms", metavar="DURATION", help="objective for the mean time between tokens (default: 100ms)"
    )
    parser.add_argument("--start-up", metavar="DURATION", help="how long a pod starts (default: as in the history)")
    parser.add_argument("--seeds", type=whole(SEEDS), default=1, metavar="N", help="runs of each policy (default: 1)")
    parser.add_argument(
        "--jobs", type=whole(WORKERS), metavar="N", help="processes side by side (default: one per core)"
    )


def _add_emulator(emulator: Parser) -> None:
    emulator.description = (
        "Serve /v1/models, /v1/chat/completions, /v1/completions and vLLM's /metrics with the physics of the simulated "
        "fleet, in real time. Answers are words without meaning; a token is taken for four characters."
    )
    emulator.add_argument("--model", required=True, metavar="NAME", help="name under which the model is served")
    emulator.add_argument("--accelerator", default="A100", metavar="NAME", help="speed and KV cache (default: A100)")
    emulator.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: 127.0.0.1)")
    emulator.add_argument(
        "--port", type=int, default=8000, metavar="N", help="port; 0 takes a free one (default: 8000)"
    )
    emulator.add_argument("--startup", default="0s", metavar="DURATION", help="time to load the model (default: 0s)")
    emulator.add_argument(
        "--output-tokens", type=int, default=150, metavar="N", help="mean answer length (default: 150)"
    )
    emulator.add_argument("--seed", type=int, default=0, metavar="N", help="of the answer lengths (default: 0)")
    emulator.add_argument("--max-num-seqs", type=int, metavar="N", help="as of vLLM (default: the accelerator's)")
    emulator.add_argument("--max-num-batched-tokens", type=int, metavar="N", help="as of vLLM")
    emulator.add_argument("--max-model-len", type=int, metavar="N", help="as of vLLM")
    emulator.add_argument("--num-gpu-blocks-override", type=int, metavar="N", help="as of vLLM")


def _add_loadgen(loadgen: Parser) -> None:
    loadgen.description = (
        "Send streamed chat completions to an OpenAI-compatible server, each at its time whether or not earlier ones "
        "are answered, and print time to first token, inter-token latency and duration."
    )
    loadgen.epilog = "A token for the server is taken from OPENAI_API_KEY. Exit status: 1 when nothing was answered."
    loadgen.add_argument("--model", required=True, metavar="NAME", help="model to ask for")
    loadgen.add_argument("--rate", required=True, metavar="STEPS", help="[[seconds, requests per minute], ...]")
    loadgen.add_argument("--url", default="http://localhost:8000/v1", metavar="URL", help="root of the API")
    loadgen.add_argument("--content", type=int, default=50, metavar="N", help="words of the prompt (default: 50)")
    loadgen.add_argument("--max-tokens", type=int, metavar="N", help="longest answer (default: the server's)")
    loadgen.add_argument("--timeout", default="120s", metavar="DURATION", help="for one request (default: 120s)")
    loadgen.add_argument("--concurrency", type=int, default=1024, metavar="N", help="most at once (default: 1024)")
    loadgen.add_argument("--evenly", action="store_true", help="evenly spaced instead of at random")
    loadgen.add_argument("--seed", type=int, default=1, metavar="N", help="of the times of sending (default: 1)")
    loadgen.add_argument("--json", action="store_true", help="print the summary as JSON")


def _add_bench(bench: Parser) -> None:
    bench.description = "Benchmarks that need no GPU. Needs the bench extra: in a clone of WVA, pip install '.[bench]'."
    benchmarks = bench.add_subparsers(dest="benchmark", metavar="BENCHMARK", parser_class=Parser, required=True)
    quality = benchmarks.add_parser(
        "quality",
        help="compare WVA with other autoscalers: requests in time, and cost",
        description="Run WVA and other autoscalers on the same traffic in a simulated world, and write a scorecard: a "
        "page with plots (HTML), Markdown, and JSON. Runs that are in the folder already are kept.",
        epilog="Exit status: 0, 1 when there is no scorecard, 2 on a wrong flag.",
        allow_abbrev=False,
    )
    quality.add_argument(
        "--suite",
        choices=("quick", "full"),
        default="quick",
        help="which scenarios to run: quick takes minutes, full about an hour (default: quick)",
    )
    quality.add_argument(
        "--scenario",
        nargs="+",
        action="extend",
        metavar="NAME",
        help="these scenarios (see --list) instead of a suite's",
    )
    quality.add_argument(
        "--requests",
        type=Path,
        metavar="FILE",
        help="your own requests, from a CSV file, instead of a suite's scenarios",
    )
    quality.add_argument(
        "--policy", nargs="+", action="extend", metavar="NAME", help="only these policies (see --list)"
    )
    quality.add_argument(
        "--seeds",
        type=whole(SEEDS),
        metavar="N",
        help="runs of each policy in each scenario (default: 1 quick, 5 full)",
    )
    quality.add_argument(
        "--out", type=Path, default=Path("scorecard"), metavar="DIR", help="folder for all files (default: scorecard)"
    )
    quality.add_argument("--markdown", type=Path, metavar="FILE", help="write the Markdown to this file, too")
    quality.add_argument(
        "--jobs", type=whole(WORKERS), metavar="N", help="processes side by side (default: one per core)"
    )
    quality.add_argument("--list", action="store_true", help="list scenarios and policies and exit")


def _add_migrate(migrate: Parser) -> None:
    migrate.description = (
        "Look at a cluster, or at manifests, that the Go controller of the same name was used with, and print what has "
        "to change before this one takes over. Nothing is written."
    )
    migrate.epilog = (
        "Exit status: 0 when nothing must change, 1 when something must or nothing could be read, 2 on a wrong flag."
    )
    migrate.add_argument(
        "paths", nargs="*", metavar="PATH", help="files or folders of YAML, - for standard input (default: the cluster)"
    )
    migrate.add_argument("--namespace", "-n", default="", metavar="NAME", help="only this namespace of the cluster")
    migrate.add_argument("--context", default=None, metavar="NAME", help="the kubeconfig's context to use")
    migrate.add_argument("--json", action="store_true", help="print JSON")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0].startswith("-") and words[0] not in _HELP_FLAGS:
        words.insert(0, "run")
    parser = build_parser(settings=words[:1] in _WITH_SETTINGS)
    arguments = parser.parse_args(_expanded(words))
    if arguments.command is None:
        parser.print_help()
        return 0
    try:
        status = _dispatch(arguments.command, arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Who reads the output, such as head, has enough. Python would write to the pipe once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _SIGPIPE_STATUS
    return status


def _expanded(words: list[str]) -> list[str]:
    if words[:1] not in _WITH_SETTINGS:
        return words
    from wva.cli.flags import expand_booleans  # noqa: PLC0415 - slow to import, and only two commands need it

    return expand_booleans(words)


def _dispatch(command: str, arguments: argparse.Namespace) -> int:
    """Import and run one sub-command: what the others need is not imported."""
    if command in ("version", "crd"):
        return _print(command)
    run: Callable[[argparse.Namespace], int] = import_module(f"wva.cli.{command}").run
    return run(arguments)


def _print(command: str) -> int:
    """Print what needs no argument."""
    if command == "version":
        print(f"wva {__version__}")
        return 0
    from wva.api.crd import render  # noqa: PLC0415 - slow to import, and only this command needs it

    sys.stdout.write(render())
    return 0

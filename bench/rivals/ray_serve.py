"""Records what the autoscaling policy of Ray Serve 2.60 decides, as examples for the tests of our rule.

Takes the wheel of ray 2.60.0 (``pip download ray==2.60.0 --no-deps``), of which it runs one module: the policy, which
is pure. Nothing of it is installed. Prints JSON: for each example the settings and, per tick, the time, the ongoing
requests, the running replicas, the target before and the decision.

    python bench/rivals/ray_serve.py ray-2.60.0-*.whl > tests/sim/rivals/ray_serve_examples.json
"""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock
from zipfile import ZipFile

VERSION = "2.60.0"
_MODULE = "ray/serve/autoscaling_policy.py"
_MOST = 20
_TICKS = 150
_QUICK = {"target_ongoing_requests": 16.0, "upscale_delay_s": 4.0, "downscale_delay_s": 20.0}


def main() -> None:
    """Print the examples."""
    wheel = Path(sys.argv[1])
    if not wheel.name.startswith(f"ray-{VERSION}-"):
        sys.exit(f"{wheel.name}: expected a wheel of ray {VERSION}, whose policy the rival follows")
    policy = _policy(ZipFile(wheel).read(_MODULE).decode())
    examples = [_example(policy, number, *case) for number, case in enumerate(_cases())]
    lines = ",\n".join(json.dumps(example, separators=(",", ":")) for example in examples)
    print(f'{{"ray": "{VERSION}", "examples": [\n{lines}\n]}}')


def _policy(source: str) -> Any:
    """Return the module of the policy. What it imports of Ray are types and names, for which stand-ins do."""
    stand_ins = {
        "ray.serve._private.common": {"DeploymentID": str},
        "ray.serve._private.constants": {
            "SERVE_AUTOSCALING_DECISION_COUNTERS_KEY": "counter",
            "SERVE_AUTOSCALING_DECISION_TIMESTAMP_KEY": "timestamp",
            "SERVE_LOGGER_NAME": "ray.serve",
        },
        "ray.serve.config": {"AutoscalingConfig": object, "AutoscalingContext": object},
        "ray.util.annotations": {"PublicAPI": lambda **_: lambda function: function},
    }
    modules = {}
    for name, members in stand_ins.items():
        for parent in (name.rsplit(".", depth)[0] for depth in range(name.count(".") + 1)):
            modules.setdefault(parent, ModuleType(parent))
        vars(modules[name]).update(members)
    found = ModuleType("autoscaling_policy")
    with mock.patch.dict(sys.modules, {**modules, found.__name__: found}):
        exec(compile(source, _MODULE, "exec"), vars(found))  # noqa: S102 - the wheel of the version that is named
    return found


def _cases() -> list[tuple[dict[str, float | None], int]]:
    """Return settings and the replicas at the start."""
    plain = {"target_ongoing_requests": 2.0, "upscale_delay_s": 30.0, "downscale_delay_s": 600.0}
    factors = [
        {"upscaling_factor": up, "downscaling_factor": down} for up, down in product((0.3, 1.0, 2.0), (0.3, 1.0))
    ]
    to_zero = _QUICK | {"downscale_to_zero_delay_s": 60.0}
    return [
        (plain, 1),
        *((_QUICK | each, start) for each in factors for start in (1, 9)),
        (to_zero, 2),
        (to_zero, 0),
    ]


def _example(policy: Any, number: int, settings: dict[str, float | None], start: int) -> dict[str, object]:
    """Return a run over random requests, with replicas that start and end one per tick at most."""
    random = Random(number)  # noqa: S311 - examples, no secrets
    config = SimpleNamespace(**{"downscale_to_zero_delay_s": None, **settings})
    config.get_upscaling_factor = lambda: settings.get("upscaling_factor") or 1.0
    config.get_downscaling_factor = lambda: settings.get("downscaling_factor") or 1.0
    config.get_target_ongoing_requests = lambda: config.target_ongoing_requests
    decide = policy._apply_autoscaling_config(policy.replica_queue_length_autoscaling_policy)  # noqa: SLF001 - theirs
    state: dict[str, object] = {}
    target = running = start
    now, ongoing, ticks = 0.0, 0.0, []
    for _ in range(_TICKS):
        now += random.choice((1.0, 1.0, 2.0, 7.0))
        if random.random() < 0.15:
            most = config.target_ongoing_requests * 12
            ongoing = round(random.choice((0.0, 0.0, random.uniform(0, 3), random.uniform(0, most))), 3)
        if random.random() < 0.3:
            running += (target > running) - (target < running)
        context = SimpleNamespace(
            current_num_replicas=running,
            target_num_replicas=target,
            total_num_requests=ongoing,
            policy_state=state,
            config=config,
        )
        with mock.patch.object(policy.time, "time", return_value=now):
            decision, state = decide(context)
        ticks.append([now, ongoing, running, target, decision])
        target = max(0, min(_MOST, decision))
    return {"settings": settings, "ticks": ticks}


if __name__ == "__main__":
    main()

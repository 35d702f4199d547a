"""Nothing that a tenant sends takes more than its share: sizes are capped, parsers are linear, long work is sliced."""

from __future__ import annotations

import gzip
from itertools import product

import pytest
from aiohttp import web

from tests.app.gateways import POOLS, QUEUE, Gateway
from tests.app.stage import DEPLOYMENTS, VARIANTS
from tests.attack.harness import Attack, Condition, Says, survive
from tests.attack.world import HPAS, SCALED_OBJECTS, TENANT


SATURATION = "wva-saturation-scaling-config"
TO_ZERO = "wva-model-scale-to-zero-config"
KIB = 1024


def args(*words):
    """Give the tenant's containers these arguments."""

    def change(world):
        world.twist(DEPLOYMENTS, "bad", lambda value: containers(value)[0].update(args=list(words)))

    return change


def containers(deployment):
    """Return the containers of a Deployment's template."""
    return deployment["spec"]["template"]["spec"]["containers"]


def invalid(contains):
    """Return what ConfigurationValid must say."""
    return Condition("ConfigurationValid", "False", contains=contains)


def entries(make, count, *, name=SATURATION):
    """Write a ConfigMap of about 950 KiB in all."""
    size = 950 * KIB // count - 16

    def write(world):
        world.tenant_map(name, {f"k{number}": make(size) for number in range(count)})

    return write


def nested(size):
    """Return lists in lists."""
    return "x: " + "[" * (size // 2 - 2) + "]" * (size // 2 - 2)


def flat(size):
    """Return a list of single values."""
    return "x: [" + "a," * (size // 2 - 3) + "]"


def named(size):
    """Return fields that there are none of."""
    return "\n".join(f"f{number}: x" for number in range(size // 9))


def deep(size):
    """Return mappings in mappings, by indentation."""
    return "\n".join(" " * depth + "a:" for depth in range(int((2 * size) ** 0.5) - 3))


ATTACKS = [
    Attack("a_shell_script_of_700_kb_in_one_quote", during=args("sh", "-c", "'" + "a" * 700_000), shows=invalid("bytes")),
    Attack("a_shell_script_of_60_kb_in_one_quote", during=args("sh", "-c", "'" + "a" * 60_000)),
    Attack("a_shell_script_of_32_000_quoted_words", during=args("sh", "-c", "'' " * 21_000)),
    Attack("one_argument_of_1_mb", during=args("--block-size=" + "9" * 1_000_000), shows=invalid("expected at most 65,536")),
    Attack("30_000_arguments_that_are_read", during=args(*["--block-size=7"] * 30_000), shows=invalid("bytes")),
    Attack(
        "30_000_environment_variables",
        during=lambda world: world.twist(
            DEPLOYMENTS,
            "bad",
            lambda value: containers(value)[0].update(
                env=[{"name": "VLLM_USE_V1", "value": "0" * 20} for _ in range(30_000)]
            ),
        ),
    ),
    Attack(
        "10_000_containers",
        during=lambda world: world.twist(
            DEPLOYMENTS,
            "bad",
            lambda value: value["spec"]["template"]["spec"].update(
                containers=[{"name": f"c{n}", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}} for n in range(10_000)]
            ),
        ),
        shows=invalid("containers: got 10,000, expected at most 64"),
    ),
    *(
        Attack(f"a_config_map_of_{count}_entries_{make.__name__}", during=entries(make, count))
        for make, count in product((nested, flat, named, deep), (15, 900))
    ),
    Attack("a_config_map_entry_of_950_kib", during=entries(nested, 1), shows=invalid("at most 64 KiB")),
    Attack("a_config_map_of_30_000_empty_entries", during=entries(lambda _: "", 30_000), shows=invalid("at most 1,000")),
    Attack("a_scale_to_zero_config_map_of_950_kib", during=entries(nested, 200, name=TO_ZERO)),
    Attack(
        "a_model_id_of_1_mb",
        during=lambda world: world.twist(VARIANTS, "bad", lambda value: value["spec"].update(modelID="m" * 1_000_000)),
        shows=invalid("expected at most 512"),
    ),
    Attack(
        "10_000_conditions_in_the_status",
        during=lambda world: world.twist(
            VARIANTS,
            "bad",
            lambda value: value["status"].update(
                conditions=[{"type": f"t{n}", "status": "False", "reason": "r", "message": "m" * 90,
                             "lastTransitionTime": "2026-01-01T00:00:00Z"} for n in range(10_000)]
            ),
        ),
    ),
    Attack(
        "250_kib_of_annotations_and_labels",
        during=lambda world: world.twist(
            VARIANTS,
            "bad",
            lambda value: value["metadata"].update(annotations={f"a/{n}": "x" * 30 for n in range(6_000)}),
        ),
    ),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_the_victim_does_not_notice(world, attack):
    """Its number, its series, its freshness, and the lag of the event loop stay as they should be."""
    await survive(world, attack)

"""A tenant's large objects do not delay the controller: WVA caps sizes, parses in linear time and slices long work."""

from __future__ import annotations

import asyncio
import gzip
from itertools import product

import pytest
from aiohttp import web

from tests.app.gateways import QUEUE
from tests.app.stage import DEPLOYMENTS, VARIANTS
from tests.attack.harness import Attack, ExpectedCondition, Says, survive
from tests.attack.world import TENANT
from tests.rows import by_day
from wva.api.meta import Key

SATURATION = "wva-saturation-scaling-config"
TO_ZERO = "wva-model-scale-to-zero-config"
KIB = 1024


def args(*words):
    """Return a step that sets the arguments of the tenant's container."""

    def change(world):
        world.twist(DEPLOYMENTS, "bad", lambda value: containers(value)[0].update(args=list(words)))

    return change


def containers(deployment):
    """Return the containers of a Deployment's template."""
    return deployment["spec"]["template"]["spec"]["containers"]


def invalid(contains):
    """Return the ConfigurationValid condition that the attack must cause."""
    return ExpectedCondition("ConfigurationValid", "False", contains=contains)


def entries(make, count, *, name=SATURATION):
    """Return a step that writes a ConfigMap of about 950 KiB with ``count`` entries."""
    size = 950 * KIB // count - 16

    def write(world):
        world.tenant_map(name, {f"k{number}": make(size) for number in range(count)})

    return write


def nested(size):
    """Return YAML with lists inside lists."""
    return "x: " + "[" * (size // 2 - 2) + "]" * (size // 2 - 2)


def flat(size):
    """Return YAML with one long list."""
    return "x: [" + "a," * (size // 2 - 3) + "]"


def named(size):
    """Return YAML with fields that WVA does not know."""
    return "\n".join(f"f{number}: x" for number in range(size // 9))


def deep(size):
    """Return YAML with mappings inside mappings, by indentation."""
    return "\n".join(" " * depth + "a:" for depth in range(int((2 * size) ** 0.5) - 3))


LINES = f'{QUEUE}{{fairness_id="f",target_model_name="m"}} 3\n'.encode()
BOMB = gzip.compress(LINES * (16 * KIB * KIB // len(LINES)))


def paged(body, **headers):
    """Return a picker that answers with this page every time."""

    async def answer(_):
        return web.Response(body=body, headers=headers)

    return answer


async def silent(_):
    """Keep the connection open and send nothing for an hour."""
    await asyncio.sleep(3600)


async def silent_pods(world):
    """Give the tenant's picker a hundred Ready pods that send nothing."""
    await world.picker(silent)
    world.many("pods", "epp-0", 100, prefix="epp")


def picker(answer):
    """Return a step that puts the tenant's model at zero behind this picker."""
    return lambda world: world.picker(answer)


def unreadable(contains):
    """Return the GatewayReadable condition that the attack must cause."""
    return ExpectedCondition("GatewayReadable", "False", "GatewayUnreadable", contains=contains, name="zero")


def started(world):
    """Tell whether the controller has started the tenant's model."""
    return world.api.store.get(DEPLOYMENTS, Key(TENANT, "zero"))["spec"]["replicas"] >= 1


def variables(world):
    """Give a container 30,000 environment variables with the same name, one that the controller reads."""
    env = [{"name": "VLLM_USE_V1", "value": "0" * 20} for _ in range(30_000)]
    world.twist(DEPLOYMENTS, "bad", lambda value: containers(value)[0].update(env=env))


def many_containers(world):
    """Give the pod template 10,000 containers with a GPU each."""
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    many = [{"name": f"c{number}", "image": "x", "resources": limits} for number in range(10_000)]
    world.twist(DEPLOYMENTS, "bad", lambda value: value["spec"]["template"]["spec"].update(containers=many))


def many_conditions(world):
    """Write 10,000 unknown conditions into the status."""
    one = {"status": "False", "reason": "r", "message": "m" * 90, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    many = [{"type": f"t{number}", **one} for number in range(10_000)]
    world.twist(VARIANTS, "bad", lambda value: value["status"].update(conditions=many))


def annotations(world):
    """Give the variant about as many annotations as Kubernetes allows."""
    many = {f"a/{number}": "x" * 30 for number in range(6_000)}
    world.twist(VARIANTS, "bad", lambda value: value["metadata"].update(annotations=many))


def model_id(text):
    """Return a step that sets the model of the variant."""
    return lambda world: world.twist(VARIANTS, "bad", lambda value: value["spec"].update(modelID=text))


ATTACKS = [
    Attack(
        "a_shell_script_of_700_kb_in_one_quote", during=args("sh", "-c", "'" + "a" * 700_000), shows=invalid("bytes")
    ),
    Attack("a_shell_script_of_60_kb_in_one_quote", during=args("sh", "-c", "'" + "a" * 60_000)),
    Attack("a_shell_script_of_32_000_quoted_words", during=args("sh", "-c", "'' " * 21_000)),
    Attack(
        "one_argument_of_1_mb", during=args("--block-size=" + "9" * 1_000_000), shows=invalid("expected at most 65,536")
    ),
    Attack("30_000_arguments_that_are_read", during=args(*["--block-size=7"] * 30_000), shows=invalid("bytes")),
    Attack("30_000_environment_variables", during=variables),
    Attack("10_000_containers", during=many_containers, shows=invalid("containers: got 10,000, expected at most 64")),
    *(
        Attack(f"a_config_map_of_{count}_entries_{make.__name__}", during=entries(make, count))
        for make, count in product((nested, flat, named, deep), (15, 900))
    ),
    Attack("a_config_map_entry_of_950_kib", during=entries(nested, 1), shows=invalid("at most 64 KiB")),
    Attack(
        "a_config_map_of_30_000_empty_entries", during=entries(lambda _: "", 30_000), shows=invalid("at most 1,000")
    ),
    Attack("a_scale_to_zero_config_map_of_950_kib", during=entries(nested, 200, name=TO_ZERO)),
    Attack("a_model_id_of_1_mb", during=model_id("m" * 1_000_000), shows=invalid("expected at most 512")),
    Attack("10_000_conditions_in_the_status", during=many_conditions),
    Attack("250_kib_of_annotations", during=annotations),
    Attack(
        "a_picker_page_of_352_kb_that_unpacks_to_16_mib",
        before=picker(paged(BOMB, **{"Content-Encoding": "gzip"})),
        shows=unreadable("compressed metrics"),
        gateway=True,
    ),
    Attack(
        "a_picker_page_of_24_mib",
        before=picker(paged(LINES * (24 * KIB * KIB // len(LINES)))),
        shows=unreadable(""),  # more than 16 MiB, or more than is read in time
        gateway=True,
    ),
    Attack(
        "a_picker_page_of_1_mib",
        before=picker(paged(LINES * (KIB * KIB // len(LINES)))),
        shows=Says("the tenant's own model is started", started),
        gateway=True,
    ),
    Attack("100_silent_picker_pods", before=silent_pods, shows=unreadable("did not answer within"), gateway=True),
]


BY_DAY = (
    "a_shell_script_of_700_kb_in_one_quote",
    "30_000_arguments_that_are_read",
    "10_000_containers",
    "a_config_map_of_900_entries_nested",
    "a_config_map_of_30_000_empty_entries",
    "a_model_id_of_1_mb",
    "a_picker_page_of_352_kb_that_unpacks_to_16_mib",
)
"""Each takes a way of its own through the code. The others, one more value on such a way, are played each night."""


@pytest.mark.parametrize("attack", by_day(ATTACKS, BY_DAY), ids=str)
async def test_the_victim_does_not_notice(world, attack):
    """The victim's number and series stay right and fresh, and the event loop does not lag."""
    await survive(world, attack)

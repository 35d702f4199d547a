"""Objects, ConfigMaps, and pages of pods and pickers contain impossible numbers, or texts that are no numbers."""

from __future__ import annotations

import json

import pytest
from aiohttp import web

from tests.app.gateways import QUEUE
from tests.app.stage import DEPLOYMENTS, SATURATION, VARIANTS
from tests.attack.harness import Attack, ExpectedCondition, ExpectedNumber, Says, survive
from tests.attack.world import HPAS, SCALED_OBJECTS, TENANT, lie, page
from tests.rows import by_day
from wva.api.meta import Key
from wva.api.scalers import PAUSED_REPLICAS_ANNOTATION
from wva.collect.resolution import MAX_REPLICAS_ANNOTATION, MIN_REPLICAS_ANNOTATION
from wva.decide.foresee import MOST_TIMES
from wva.numbers import MAX_REPLICAS

TO_ZERO = "wva-model-scale-to-zero-config"
QUEUEING = "wva-queueing-model-config"
HUGE = "1.7e308"
REFUSED = "expected a whole number from 0 to 2,147,483,647; in force: "


def invalid(contains):
    """Return the ConfigurationValid condition that reports the refused value."""
    return ExpectedCondition("ConfigurationValid", "False", "InvalidConfiguration", contains=contains)


def within_range(world):
    """Tell whether the tenant's number is a possible number of replicas."""
    decision = world.decision_of()
    return decision is not None and 0 <= decision.desired <= MAX_REPLICAS


COUNTABLE = Says("the tenant's number is one of replicas", within_range)
FLOODED = Says("the flood is answered", lambda world: 1 < world.decision_of().desired <= MOST_TIMES)


def paused(text):
    """Return a step that writes a text as KEDA's paused replicas of the tenant's target."""
    return lambda world: world.scaled_object(annotations={PAUSED_REPLICAS_ANNOTATION: text})


def annotated(**annotations):
    """Return a step that annotates the tenant's variant with bounds, and gives its target an HPA."""

    def before(world):
        world.hpa()
        named = {"minimum": MIN_REPLICAS_ANNOTATION, "maximum": MAX_REPLICAS_ANNOTATION}
        written = {named[name]: text for name, text in annotations.items()}
        world.twist(VARIANTS, "bad", lambda value: value["metadata"].update(annotations=written))

    return before


def forced_hpa(**spec):
    """Return a step that stores an HPA without validation."""

    def before(world):
        world.hpa()
        world.twist(HPAS, "hpa", lambda value: value["spec"].update(spec))

    return before


def forced_scaled_object(**spec):
    """Return a step that stores a ScaledObject without validation."""

    def before(world):
        world.scaled_object()
        world.twist(SCALED_OBJECTS, "so", lambda value: value["spec"].update(spec))

    return before


def deployed(replicas):
    """Return a step that writes this many replicas into spec and status of the tenant's Deployment."""

    def change(value):
        value["spec"].update(replicas=replicas)
        value["status"] = {**value.get("status", {}), "replicas": replicas, "readyReplicas": replicas}

    return lambda world: world.twist(DEPLOYMENTS, "bad", change)


def status_of(number):
    """Return a step that writes a number into the status of the tenant's variant."""
    allocation = {"accelerator": "H100", "numReplicas": number, "lastRunTime": "2099-01-01T00:00:00Z"}
    return lambda world: world.twist(
        VARIANTS, "bad", lambda value: value.setdefault("status", {}).update(desiredOptimizedAlloc=allocation)
    )


def thresholds(text, *, waiting=1):
    """Return a step that gives the tenant's namespace its own thresholds, and its pod some load."""

    def before(world):
        world.pages[TENANT, "bad"] = lambda _: page(usage=0.4, waiting=waiting)
        world.hpa(maximum=2)
        world.tenant_map(SATURATION, {"default": text})

    return before


def together(world):
    """Give the tenant's namespace a trigger, and its model a threshold below it in the global ConfigMap."""
    thresholds("queueSpareTrigger: 4\n", waiting=0)(world)
    model = world.api.store.get(VARIANTS, Key(TENANT, "bad"))["spec"]["modelID"]
    world.config_map(SATURATION, {"one": f"model_id: {model}\nnamespace: {TENANT}\nqueueLengthThreshold: 3\n"})


def reports(**amounts):
    """Return a step that lets the tenant's pod report these amounts, and allows its model to go to zero."""

    def before(world):
        world.pages[TENANT, "bad"] = lambda _: page(**amounts)
        world.tenant_map(TO_ZERO, {"default": "enable_scale_to_zero: true\nretention_period: 10m\n"})

    return before


def container(args=(), gpus=None):
    """Return a step that sets the arguments and GPUs of the tenant's container."""

    def before(world):
        one = {"name": "vllm", "image": "vllm", "args": list(args)}
        if gpus is not None:
            one["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
        world.twist(DEPLOYMENTS, "bad", lambda value: value["spec"]["template"]["spec"].update(containers=[one]))

    return before


def picker(line):
    """Return a step that puts a variant at zero behind a picker that answers with one line."""

    async def before(world):
        async def answer(_):
            return web.Response(text=f'{QUEUE}{{target_model_name="org/zero"}} {line}\n')

        await world.picker(answer)

    return before


def flood(rate):
    """Return a step that gives the tenant's model a known performance, no maximum, and ``rate`` requests per second."""
    signals = {
        "running": 4,
        "waiting": 0,
        "input_tokens": 100,
        "output_tokens": 178,
        "prefix_hit_rate": 0,
        "time_to_first_token": 0.1,
        "inter_token_latency": 0.03,
        "success_rate": rate,
    }

    def before(world):
        known = {"model_id": "org/model", "acc": "H100", "alpha": 20.58, "beta": 0.41, "gamma": 5.2, "delta": 0.1}
        known["model_id"] = world.api.store.get(VARIANTS, Key(TENANT, "bad"))["spec"]["modelID"]
        world.config_map("wva-model-performance-config", {"one": json.dumps({**known, "maxBatchSize": 4})})
        world.tenant_map(QUEUEING, {"default": "tuningEnabled: false\n"})
        (pod,) = world.pods()

        def meddler(query, answer):
            if '"signal"' in query and "inter_token" in query:
                others = [each for each in answer["data"]["result"] if each["metric"].get("pod") != pod]
                lies = [lie(str(value), pod=pod, signal=name) for name, value in signals.items()]
                answer["data"]["result"] = others + lies
            return answer

        world.meddle(meddler)

    return before


NONE = ExpectedCondition("MetricsAvailable", contains=" invalid (")

ATTACKS = [
    *(
        Attack(
            f"paused_replicas_of_{digits}_digits",
            before=paused("9" * digits),
            shows=(invalid("paused-replicas"), invalid(REFUSED), ExpectedNumber(1)),
        )
        for digits in (30, 400, 5_000)
    ),
    Attack("paused_replicas_below_zero", before=paused("-1"), shows=(invalid("paused-replicas"), ExpectedNumber(1))),
    Attack("paused_replicas_in_digits_of_another_script", before=paused("\u0663"), shows=invalid("paused-replicas")),
    Attack(
        "paused_replicas_as_many_as_there_can_be",
        before=paused(str(MAX_REPLICAS)),
        shows=ExpectedNumber(MAX_REPLICAS),
    ),
    Attack("paused_replicas_one_more_than_there_can_be", before=paused(str(MAX_REPLICAS + 1)), shows=invalid(REFUSED)),
    Attack(
        "annotations_of_400_and_5000_digits",
        before=annotated(minimum="9" * 400, maximum="9" * 5_000),
        shows=(invalid(MIN_REPLICAS_ANNOTATION), invalid(MAX_REPLICAS_ANNOTATION), ExpectedNumber(1)),
    ),
    Attack(
        "annotations_that_only_python_reads",
        before=annotated(minimum="1_0", maximum="0x10"),
        shows=(invalid("'1_0'"), invalid("'0x10'"), ExpectedNumber(1)),
    ),
    Attack(
        "an_annotation_of_all_replicas_there_can_be",
        before=annotated(minimum=str(MAX_REPLICAS)),
        shows=ExpectedNumber(4),
    ),
    Attack(
        "an_hpa_with_bounds_beyond_any_replicas",
        before=forced_hpa(minReplicas=-7, maxReplicas=10**30),
        shows=(invalid("spec.minReplicas"), invalid("spec.maxReplicas"), ExpectedNumber(1)),
    ),
    Attack(
        "a_scaled_object_with_bounds_beyond_any_replicas",
        before=forced_scaled_object(minReplicaCount=10**30, maxReplicaCount=-3, idleReplicaCount=-1),
        shows=(invalid("spec.minReplicaCount"), invalid("spec.idleReplicaCount"), ExpectedNumber(1)),
    ),
    Attack("a_deployment_with_all_replicas_there_can_be", during=deployed(MAX_REPLICAS), shows=COUNTABLE),
    Attack("a_deployment_with_more_replicas_than_there_can_be", during=deployed(10**30), shows=COUNTABLE),
    Attack("a_deployment_with_less_than_no_replicas", during=deployed(-(10**30)), shows=COUNTABLE),
    Attack("a_status_with_more_replicas_than_there_can_be", before=status_of(10**30), shows=ExpectedNumber(1)),
    Attack("a_status_with_less_than_no_replicas", before=status_of(-(2**63)), shows=ExpectedNumber(1)),
    Attack(
        "a_cost_of_5000_digits",
        before=lambda world: world.twist(VARIANTS, "bad", lambda value: value["spec"].update(variantCost="9" * 5_000)),
        shows=(invalid("spec.variantCost"), ExpectedNumber(1)),
    ),
    Attack(
        "a_queue_threshold_of_zero",
        before=thresholds("queueLengthThreshold: 0\n"),
        shows=(invalid("queueLengthThreshold: got 0, expected above 0"), ExpectedNumber(2)),
    ),
    Attack(
        "a_queue_trigger_above_its_threshold",
        before=thresholds("queueSpareTrigger: 1e9\n", waiting=0),
        shows=(
            invalid("queueLengthThreshold: got 5, expected above 0 and at least queueSpareTrigger"),
            ExpectedNumber(2),
        ),
    ),
    Attack(
        "a_queue_threshold_of_a_global_entry_below_the_trigger_of_the_namespace",
        before=together,
        shows=(invalid("together.queueLengthThreshold: got 3"), ExpectedNumber(2)),
    ),
    Attack(
        "kv_threshold_and_trigger_of_zero",
        before=thresholds("kvCacheThreshold: 0\nkvSpareTrigger: 0\n"),
        shows=(invalid("kvCacheThreshold: got 0, expected at least 0.01"), ExpectedNumber(2)),
    ),
    Attack(
        "thresholds_of_nearly_nothing",
        before=thresholds(
            "kvCacheThreshold: 1e-300\nkvSpareTrigger: 0\nqueueLengthThreshold: 1e-300\nqueueSpareTrigger: 0\n",
            waiting=1e9,
        ),
        shows=(invalid("in force: 1e-300: the model grows to its maximum at any load"), ExpectedNumber(2)),
    ),
    Attack(
        "token_thresholds_of_nearly_nothing",
        before=thresholds("analyzerName: saturation\nscaleUpThreshold: 1e-300\nscaleDownBoundary: 5e-324\n"),
        shows=(invalid("scaleUpThreshold: got 1e-300, expected at least 0.01"), COUNTABLE),
    ),
    Attack(
        "a_multiplier_of_hardly_more_than_one",
        before=lambda world: world.tenant_map(QUEUEING, {"default": "sloMultiplier: 1.0000001\n"}),
        shows=(invalid("sloMultiplier: got 1.0000001, expected at least 1.01"), COUNTABLE),
    ),
    Attack(
        "a_threshold_of_60_thousand_digits",
        before=thresholds(f"queueLengthThreshold: {'9' * 60_000}\n"),
        shows=(invalid("queueLengthThreshold"), ExpectedNumber(1)),
    ),
    Attack("more_running_and_waiting_than_a_sum_can_hold", before=reports(running=HUGE, waiting=HUGE), shows=NONE),
    Attack(
        "more_finished_than_a_sum_can_hold",
        before=reports(running=HUGE, finished=HUGE),
        shows=ExpectedNumber(1),
    ),
    Attack("a_usage_above_everything", before=reports(usage=HUGE), shows=NONE),
    Attack("a_usage_below_zero", before=reports(usage="-1e300"), shows=NONE),
    Attack("a_queue_below_zero", before=reports(waiting="-1"), shows=NONE),
    Attack("a_usage_that_is_no_number", before=reports(usage="NaN"), shows=NONE),
    Attack("an_infinite_queue", before=reports(waiting="+Inf"), shows=NONE),
    Attack("thousand_million_requests_per_second_without_a_maximum", before=flood(1e9), shows=(COUNTABLE, FLOODED)),
    Attack(
        "gpus_of_10000_digits",
        before=container(gpus="9" * 10_000),
        shows=ExpectedNumber(1),
    ),
    Attack(
        "arguments_with_numbers_of_5000_digits",
        before=container(["--max-num-seqs", "9" * 5_000, f"--gpu-memory-utilization=1e{'9' * 400}"]),
        shows=ExpectedNumber(1),
    ),
    *(
        Attack(name, before=picker(line), gateway=True)
        for name, line in {
            "a_picker_with_a_value_of_400_digits": "9" * 400,
            "a_picker_with_a_time_of_400_digits": f"1 {'9' * 400}",
            "a_picker_with_a_value_of_5000_digits": "9" * 5_000,
            "a_picker_with_an_infinite_value": "+Inf",
            "a_picker_with_a_value_that_overflows": "1e999",
        }.items()
    ),
]


BY_DAY = (
    "paused_replicas_one_more_than_there_can_be",
    "annotations_of_400_and_5000_digits",
    "an_hpa_with_bounds_beyond_any_replicas",
    "a_deployment_with_more_replicas_than_there_can_be",
    "a_status_with_less_than_no_replicas",
    "a_cost_of_5000_digits",
    "kv_threshold_and_trigger_of_zero",
    "a_threshold_of_60_thousand_digits",
    "more_running_and_waiting_than_a_sum_can_hold",
    "thousand_million_requests_per_second_without_a_maximum",
    "arguments_with_numbers_of_5000_digits",
    "a_picker_with_a_value_of_5000_digits",
)
"""Each takes a way of its own through the code. The others, one more value on such a way, are played each night."""


@pytest.mark.parametrize("attack", by_day(ATTACKS, BY_DAY), ids=str)
async def test_no_number_of_the_tenant_is_the_victims(world, attack):
    """The victim's number, series and conditions stay right; a condition tells the tenant which number WVA refuses."""
    await survive(world, attack)

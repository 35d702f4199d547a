"""The parts that WVA keeps of objects that are larger than any real one."""

from __future__ import annotations

import msgspec

from wva.api.core import Container, EnvVar, PodTemplate, TemplateSpec
from wva.api.meta import Condition
from wva.api.variantautoscaling import (
    ConditionType,
    VariantAutoscaling,
    VariantAutoscalingSpec,
    VariantAutoscalingStatus,
)
from wva.collect.surplus import (
    MAX_ARGUMENT_BYTES,
    MAX_CONDITIONS,
    MAX_CONTAINERS,
    bounded_target,
    bounded_variant,
    model_id_fits,
    surplus_problems,
)
from wva.collect.variants import vllm_parameters
from wva.model.vllm_parameters import VllmParameters
from wva.targets import Deployment, PodSetSpec

VA = VariantAutoscaling(spec=VariantAutoscalingSpec(model_id="m"))


def deployment(*containers):
    """Return a Deployment with these containers."""
    return Deployment(spec=PodSetSpec(template=PodTemplate(spec=TemplateSpec(tuple(containers)))))


def containers_of(found):
    """Return the containers of a Deployment."""
    return found.spec.template.spec.containers


def test_a_usual_deployment_is_kept_as_it_is():
    """A Deployment of usual size is not copied."""
    made = deployment(Container("vllm", command=("vllm",), env=(EnvVar("VLLM_USE_V1", "0"),)))
    assert bounded_target(made) is made
    assert not surplus_problems(VA, made)


def test_the_environment_is_not_kept():
    """WVA keeps only the variable that it reads, in its last entry."""
    env = [EnvVar("TOKEN", "secret"), EnvVar("VLLM_USE_V1", "1"), EnvVar("VLLM_USE_V1", "0"), EnvVar("X", "y")]
    (container,) = containers_of(bounded_target(deployment(Container("vllm", env=tuple(env)))))
    assert container.env == (EnvVar("VLLM_USE_V1", "0"),)


def test_arguments_beyond_the_limit_are_not_read_and_said():
    """The limit is for the bytes of command and args together, and a message tells when they exceed it."""
    fits = Container("fits", args=("--block-size=8", "é" * ((MAX_ARGUMENT_BYTES - 16) // 2)))
    beyond = msgspec.structs.replace(fits, name="beyond", command=("x",))
    kept = bounded_target(deployment(fits, beyond))
    first, second = containers_of(kept)
    assert first is fits
    assert (second.command, second.args) == ((), ())
    assert vllm_parameters([first]).block_size == 8
    assert vllm_parameters([second]) == VllmParameters()
    (line,) = surplus_problems(VA, kept)
    got = "container beyond: got 65,538 bytes of command and args, expected at most 65,536"
    assert line == f"{got}; in force: the defaults of vLLM"


def test_only_the_first_containers_are_kept_and_that_is_said():
    """The message has the number of containers."""
    kept = bounded_target(deployment(*(Container(f"c{number}") for number in range(5_000))))
    assert len(containers_of(kept)) == MAX_CONTAINERS
    assert surplus_problems(VA, kept) == ["containers: got 5,000, expected at most 64; in force: the first 64"]


def test_a_model_id_that_no_label_can_be_is_no_model():
    """WVA does not decide on such a variant, and a message says why."""
    va = bounded_variant(VariantAutoscaling(spec=VariantAutoscalingSpec(model_id="m" * 1_000_000)))
    assert len(va.spec.model_id) == 513
    assert not model_id_fits(va)
    assert surplus_problems(va, None) == [
        "spec.modelID: got more characters, expected at most 512; in force: no decision on this variant"
    ]
    assert model_id_fits(VA)
    assert not model_id_fits(VariantAutoscaling())


def test_of_many_conditions_the_own_ones_are_kept():
    """WVA keeps its own conditions; of two of one type the first counts."""
    foreign = [Condition(f"t{number}", "True") for number in range(10_000)]
    own = [Condition(ConditionType.READY, "True", "First"), Condition(ConditionType.READY, "False", "Second")]
    va = bounded_variant(msgspec.structs.replace(VA, status=VariantAutoscalingStatus(conditions=(*foreign, *own))))
    assert len(va.status.conditions) == MAX_CONDITIONS
    assert va.status.condition(ConditionType.READY).reason == "First"
    assert bounded_variant(va) is va

"""The choice of the optimizer, of best effort and of growth on an unknown inventory, and who is told of a bad one."""

from __future__ import annotations

import pytest

from tests.config.parsing import parse_saturation
from wva.api.meta import Key
from wva.api.variantautoscaling import VariantAutoscaling
from wva.config import Inputs, load
from wva.config.live import LiveConfiguration
from wva.model.inventory import UnknownInventory
from wva.model.optimizers import Analyzer, BestEffort, Optimizer, SolverPolicy
from wva.model.variant import ModelKey

SATURATION = "wva-saturation-scaling-config"
QUEUEING = "wva-queueing-model-config"
MODEL = ModelKey("prod", "m")
SETTINGS = load(Inputs({}, {"PROMETHEUS_BASE_URL": "https://p"}, {})).settings


def live(name=SATURATION, namespace=SETTINGS.pod_namespace, *, configuration=None, **data):
    """Write a ConfigMap, and return the configuration and its problems."""
    configuration = configuration or LiveConfiguration(SETTINGS, refusal=lambda _: "")
    outcome = configuration.apply(Key(namespace, name), data)
    return configuration, outcome.problems


def optimizer(**data):
    """Return the optimizer of the model under a saturation ConfigMap."""
    return live(**data)[0].policy.optimizer_for(MODEL)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Optimizer.BY_ANALYZER),
        ("optimizerName: ''", Optimizer.BY_ANALYZER),
        ("analyzerName: percentage", Optimizer.SIZED),
        ("kvSpareTrigger: 0.2", Optimizer.SIZED),
        ("optimizerName: sized", Optimizer.SIZED),
        ("optimizerName: one-step", Optimizer.ONE_STEP),
        ("analyzerName: saturation", Optimizer.BY_ANALYZER),
        ("analyzerName: saturation\noptimizerName: cost-aware", Optimizer.COST_AWARE),
        ("analyzerName: saturation\noptimizerName: greedy-by-score", Optimizer.GREEDY_BY_SCORE),
        ("analyzerName: queueing", Optimizer.MODEL_BASED),
        ("analyzerName: queueing\noptimizerName: model-based", Optimizer.MODEL_BASED),
        ("analyzerName: queueing\noptimizerName: cost-aware", Optimizer.COST_AWARE),
        ("analyzerName: queueing\noptimizerName: greedy-by-score", Optimizer.GREEDY_BY_SCORE),
    ],
)
def test_the_optimizer_follows_the_analyzer_unless_it_is_named(text, expected):
    """The cases are all pairs that fit."""
    assert optimizer(default=text) is expected


@pytest.mark.parametrize(
    ("text", "able"),
    [
        ("optimizerName: cost-aware", '"", which go with analyzerName "demand"'),
        (
            "analyzerName: percentage\noptimizerName: cost-aware",
            'sized or one-step, which go with analyzerName "percent',
        ),
        ("analyzerName: saturation\noptimizerName: sized", "cost-aware or greedy-by-score, which go with"),
        ("analyzerName: saturation\noptimizerName: model-based", 'which go with analyzerName "saturation"'),
        ("analyzerName: queueing\noptimizerName: one-step", "model-based or cost-aware or greedy-by-score"),
    ],
)
def test_an_optimizer_that_cannot_answer_its_analyzer_is_rejected(text, able):
    """The error has the names of the optimizers that fit, and the one in force."""
    configuration, (problem,) = live(default=text)
    assert "optimizerName" in problem
    assert able in problem
    assert problem.endswith('in force: "", and nothing of this entry')
    assert configuration.policy.optimizer_for(MODEL) is Optimizer.BY_ANALYZER
    assert configuration.policy.analyzer_for(MODEL) is Analyzer.DEMAND


def test_a_model_inherits_the_optimizer_unless_it_names_an_analyzer():
    """A model with its own analyzer gets the optimizer of that analyzer."""
    assert optimizer(default="optimizerName: one-step", a="model_id: m") is Optimizer.ONE_STEP
    named = "model_id: m\nanalyzerName: saturation"
    assert optimizer(default="optimizerName: one-step", a=named) is Optimizer.BY_ANALYZER
    assert optimizer(default="analyzerName: saturation", a="model_id: m\noptimizerName: cost-aware") is (
        Optimizer.COST_AWARE
    )
    assert optimizer(default="optimizerName: one-step", a="model_id: m\noptimizerName: ''") is Optimizer.SIZED


def test_an_analyzer_from_the_queueing_config_map_has_its_own_optimizer_unless_the_chosen_one_fits():
    """The saturation entry does not know which analyzer the queueing ConfigMap selects."""
    for text, expected in (
        ("optimizerName: one-step", Optimizer.MODEL_BASED),
        ("analyzerName: saturation\noptimizerName: cost-aware", Optimizer.COST_AWARE),
    ):
        configuration, _ = live(default=text)
        live(QUEUEING, configuration=configuration, default="")
        assert configuration.policy.optimizer_for(MODEL) is expected


def test_a_global_entry_that_contradicts_the_default_of_a_namespace_gives_way():
    """WVA checks analyzer and optimizer again when it lays a global entry over another default."""
    configuration, _ = live(default="analyzerName: saturation", a="model_id: m\noptimizerName: cost-aware")
    live(namespace="prod", configuration=configuration, default="analyzerName: saturation")
    assert configuration.policy.optimizer_for(MODEL) is Optimizer.COST_AWARE
    live(namespace="prod", configuration=configuration, default="analyzerName: ''")
    assert configuration.policy.optimizer_for(MODEL) is Optimizer.SIZED
    assert configuration.policy.misfits(MODEL) == ("a",)
    assert configuration.policy.optimizer_for(ModelKey("dev", "m")) is Optimizer.COST_AWARE


def test_an_unknown_optimizer_leaves_the_last_one_and_is_told_to_the_variants_concerned():
    """The error names the entry and the optimizer in force."""
    configuration, _ = live(default="optimizerName: one-step")
    _, (problem,) = live(configuration=configuration, default="optimizerName: fast")
    assert problem.startswith("default.optimizerName: got fast, expected ")
    assert "sized, one-step, cost-aware, greedy-by-score, model-based" in problem
    assert problem.endswith('in force: "one-step", with the last valid text of this entry')
    assert configuration.policy.optimizer_for(MODEL) is Optimizer.ONE_STEP
    va = VariantAutoscaling()
    assert "optimizerName" in configuration.problem_for(va)


def test_growth_on_an_unknown_inventory_is_chosen_in_the_global_default():
    """Without a choice WVA does not grow a model on an unknown inventory."""
    assert parse_saturation({}).policy.unknown_inventory is UnknownInventory.NO_GROWTH
    for text, expected in (
        ("", UnknownInventory.NO_GROWTH),
        ("unknownInventory: no-growth", UnknownInventory.NO_GROWTH),
        ("unknownInventory: unlimited", UnknownInventory.UNLIMITED),
    ):
        assert parse_saturation({"default": text}).policy.unknown_inventory is expected
        assert live(default=text)[0].policy.unknown_inventory is expected


def test_a_wrong_word_for_an_unknown_inventory_leaves_the_last_one():
    """A typing error never permits growth that was not permitted before."""
    configuration, _ = live(default="unknownInventory: unlimited")
    _, (problem,) = live(configuration=configuration, default="unknownInventory: open")
    told = "got open, expected no-growth or unlimited; in force: "
    assert f"{told}unlimited, with the last valid text of this entry" in problem
    assert configuration.policy.unknown_inventory is UnknownInventory.UNLIMITED
    configuration, (problem,) = live(default="unknownInventory: open")
    assert f"{told}no-growth, and nothing of this entry" in problem
    assert configuration.policy.unknown_inventory is UnknownInventory.NO_GROWTH


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", SolverPolicy()),
        ("unlimited: true", SolverPolicy(unlimited=True)),
        (
            "unlimited: false\nsaturationPolicy: PriorityExhaustive\ndelayedBestEffort: true",
            SolverPolicy(False, True, BestEffort.PRIORITY_EXHAUSTIVE),
        ),
        ("saturationPolicy: PriorityRoundRobin", SolverPolicy(None, False, BestEffort.PRIORITY_ROUND_ROBIN)),
        ("saturationPolicy: RoundRobin", SolverPolicy(None, False, BestEffort.ROUND_ROBIN)),
        ("saturationPolicy: None", SolverPolicy()),
    ],
)
def test_how_the_solver_shares_is_chosen_in_the_global_default(text, expected):
    """The options have the names that they have in the original."""
    configuration, problems = live(QUEUEING, default=text)
    assert (problems, configuration.policy.solver) == ((), expected)


@pytest.mark.parametrize(
    ("text", "in_force"),
    [
        ("saturationPolicy: none", "RoundRobin"),
        ("saturationPolicy: Greedy", "RoundRobin"),
        ("unlimited: 1", "follows the GPU limit"),
        ("delayedBestEffort: 'true'", "false"),
    ],
)
def test_a_wrong_option_of_the_solver_leaves_the_last_one(text, in_force):
    """Names are case-sensitive, as in the original. The original took an unknown name for None."""
    configuration, _ = live(QUEUEING, default="saturationPolicy: RoundRobin")
    _, (problem,) = live(QUEUEING, configuration=configuration, default=text)
    assert problem.startswith(f"default.{text.split(':')[0]}: got ")
    assert problem.endswith(f"in force: {in_force}, with the last valid text of this entry")
    assert configuration.policy.solver == SolverPolicy(None, False, BestEffort.ROUND_ROBIN)


def test_what_is_about_all_models_has_no_effect_elsewhere():
    """WVA warns about it in the entry of a model and in a ConfigMap of a namespace."""
    configuration, _ = live(a="model_id: m\nunknownInventory: unlimited")
    live(namespace="prod", configuration=configuration, default="unknownInventory: unlimited")
    live(
        QUEUEING,
        configuration=configuration,
        a="model_id: m\nnamespace: prod\nunlimited: false\nsaturationPolicy: RoundRobin\ndelayedBestEffort: true",
    )
    live(QUEUEING, "prod", configuration=configuration, default="unlimited: false")
    policy = configuration.policy
    assert (policy.unknown_inventory, policy.solver) == (UnknownInventory.NO_GROWTH, SolverPolicy())
    warnings = [warning.split(" has no effect here")[0] for warning in configuration.warnings()]
    assert sorted(warning.split(": ")[-1] for warning in warnings) == [
        "delayedBestEffort",
        "saturationPolicy",
        "unknownInventory",
        "unknownInventory",
        "unlimited",
        "unlimited",
    ]

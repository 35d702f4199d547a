"""The configuration in force is the same, in whatever order ConfigMaps, namespaces and variants come.

The state machine drives the real controllers over real caches, and compares the result with a model that sees only the
present objects.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.config.configured import OWN, ConfiguredCluster
from wva.api.meta import Key
from wva.model.policy import Analyzer, QueueingPolicy
from wva.model.variant import ModelKey

INSTANCE = "blue"
NAMESPACES = ("a", "b", OWN)
MODELS = ("m", "n")
SATURATION = ("wva-saturation-scaling-config", "saturation-scaling-config")
SCALE_TO_ZERO = ("wva-model-scale-to-zero-config", "model-scale-to-zero-config")
QUEUEING = ("wva-queueing-model-config",)


class NamespaceConfiguration(RuleBasedStateMachine):
    """Objects come, change and go in any order; the model knows only the present ones."""

    def __init__(self):
        """Begin with an empty cluster."""
        super().__init__()
        self.cluster = ConfiguredCluster(instance=INSTANCE)
        self.maps = {}
        self.labels = {}
        self.variants = {}
        self.excluded = set()
        self.started = False

    @initialize(early=st.booleans())
    def begin(self, early):
        """Lead from the beginning, or only once objects are there."""
        if early:
            self.lead()

    @rule()
    def lead(self):
        """Begin to lead, once."""
        if not self.started:
            self.started = True
            self.cluster.start()

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        name=st.sampled_from((*SATURATION, *SCALE_TO_ZERO, *QUEUEING)),
        default=st.one_of(st.none(), st.sampled_from((0.5, 0.6, 0.7))),
        models=st.dictionaries(st.sampled_from(MODELS), st.sampled_from((0.55, 0.65, 0.75))),
    )
    def write(self, namespace, name, default, models):
        """Create a ConfigMap or replace its content; the numbers tell the entries apart."""
        self.maps[namespace, name] = (default, models)
        values = {**({"default": default} if default else {}), **models}
        self.cluster.config_map(namespace, name, {key: self.text(name, key, value) for key, value in values.items()})

    @staticmethod
    def text(name, key, value):
        """Return the YAML of an entry."""
        whom = "" if key == "default" else f"model_id: {key}\n"
        if name in SATURATION:
            return f"{whom}kvCacheThreshold: {value}"
        if name in SCALE_TO_ZERO:
            return f"{whom}enable_scale_to_zero: true\nretention_period: {int(value * 100)}s"
        # A global entry of the queueing model must name a namespace, and has no effect in another one.
        return f"{whom}{whom and 'namespace: a'}\nsloMultiplier: {value + 2}"

    @rule(namespace=st.sampled_from(NAMESPACES), name=st.sampled_from((*SATURATION, *SCALE_TO_ZERO, *QUEUEING)))
    def delete(self, namespace, name):
        """Delete a ConfigMap, if it is there."""
        if self.maps.pop((namespace, name), None) is not None:
            self.cluster.config_map(namespace, name, None)

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        enabled=st.sampled_from(("", "true", "yes")),
        excluded=st.sampled_from(("", "true", "True")),
    )
    def label(self, namespace, enabled, excluded):
        """Create or relabel a namespace."""
        self.labels[namespace] = (enabled, excluded)
        self.cluster.namespace(namespace, enabled=enabled, excluded=excluded)

    @rule(namespace=st.sampled_from(NAMESPACES))
    def forget_namespace(self, namespace):
        """Delete a namespace object; the caches may still have the objects in it."""
        if self.labels.pop(namespace, None) is not None:
            self.cluster.namespaces.delete(Key("", namespace))

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        name=st.sampled_from(("x", "y")),
        instance=st.sampled_from((INSTANCE, "red")),
    )
    def add_variant(self, namespace, name, instance):
        """Create or relabel a variant."""
        self.variants[namespace, name] = instance
        self.cluster.va(namespace, name, instance=instance)

    @rule(namespace=st.sampled_from(NAMESPACES), name=st.sampled_from(("x", "y")))
    def remove_variant(self, namespace, name):
        """Delete a variant, if it is there."""
        if self.variants.pop((namespace, name), None) is not None:
            self.cluster.variants.delete(Key(namespace, name))

    # --- the model ---------------------------------------------------------------------------------------------------

    def accepts(self, namespace):
        """Say whether the ConfigMaps of a namespace count."""
        enabled, excluded = self.labels.get(namespace, ("", ""))
        if namespace == OWN or excluded == "true":
            return False
        return enabled == "true" or any(
            place == namespace and instance == INSTANCE for (place, _), instance in self.variants.items()
        )

    def said(self, namespace, names):
        """Return the default and the models of the ConfigMap that counts in a namespace."""
        return next((self.maps[namespace, name] for name in names if (namespace, name) in self.maps), (None, {}))

    def value(self, namespace, model, names, *, pairs=False):
        """Return the numbers of the entry for a model and of the default; None means that there is none."""
        default, models = self.said(OWN, names)
        if pairs and namespace != "a":
            models = {}
        if self.accepts(namespace):
            own, own_models = self.said(namespace, names)
            if pairs and namespace != "a":
                own_models = {}
            default, models = (default if own is None else own), {**models, **own_models}
        return models.get(model), default

    @invariant()
    def an_excluded_namespace_is_let_go_of_in_time(self):
        """When the exclusion of a namespace changes, WVA looks at all its variants again."""
        excluded = {name for name, (_, value) in self.labels.items() if value == "true"}
        if self.started:
            for key in {Key(*key) for key in self.variants}:
                if (key.namespace in excluded) != (key.namespace in self.excluded):
                    assert key in self.cluster.revisited
        self.cluster.revisited.clear()
        self.excluded = excluded

    @invariant()
    def what_is_in_force_is_what_is_there(self):
        """Every model of every namespace has the values of the nearest entry."""
        if not self.started:
            return
        self.cluster.settle()
        policy = self.cluster.configuration.policy
        for namespace in NAMESPACES:
            for model in MODELS:
                key = ModelKey(namespace, model)
                own, default = self.value(namespace, model, SATURATION)
                assert policy.saturation_for(key).kv_cache_threshold == (own or default or 0.8)
                own, default = self.value(namespace, model, SCALE_TO_ZERO)
                expected = own or default
                assert policy.scale_to_zero_for(key).enabled == bool(expected)
                assert policy.scale_to_zero_for(key).retention_seconds == (int(expected * 100) if expected else 600)
                own, default = self.value(namespace, model, QUEUEING, pairs=True)
                expected = own or default
                assert policy.queueing_for(key) == (QueueingPolicy(expected + 2) if expected else None)
                thresholds = any(self.value(namespace, model, SATURATION))
                saturation = Analyzer.PERCENTAGE if thresholds else Analyzer.DEMAND
                analyzer = Analyzer.QUEUEING if expected else saturation
                assert policy.analyzer_for(key) is analyzer


TestNamespaceConfiguration = NamespaceConfiguration.TestCase
TestNamespaceConfiguration.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)

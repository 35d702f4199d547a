"""The kinds and objects that the tests of the embedded API server use."""

from wva.sim.apiserver import KindSpec, ScalePaths

WIDGETS = KindSpec(
    group="test.example.com",
    version="v1",
    plural="widgets",
    kind="Widget",
    status=True,
    scale=ScalePaths(selector=("status", "selector")),
    schema={
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "required": ["model"],
                "properties": {
                    "model": {"type": "string"},
                    "replicas": {"type": "integer"},
                    "cost": {"type": "string", "default": "10.0"},
                },
            },
            "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
        },
    },
)


def config_map(name, namespace="default", data=None, **metadata):
    """Return a ConfigMap."""
    return {"metadata": {"name": name, "namespace": namespace, **metadata}, "data": data or {"key": "value"}}


def widget(name, namespace="default", **spec):
    """Return a Widget."""
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"model": "m", **spec}}

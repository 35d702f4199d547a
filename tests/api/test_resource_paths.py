"""URL paths of kinds and objects. No name can lead a path elsewhere."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.api.kinds import LEASES, PODS, VARIANT_AUTOSCALINGS
from wva.api.meta import Key
from wva.api.resource import Resource
from wva.targets import DEPLOYMENTS

NODES = Resource("", "v1", "nodes", "Node", PODS.type, namespaced=False)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("ns"), "/api/v1/namespaces/ns/pods"),
        (DEPLOYMENTS.path("ns", "d"), "/apis/apps/v1/namespaces/ns/deployments/d"),
        (
            VARIANT_AUTOSCALINGS.path("ns", "va", "status"),
            "/apis/llmd.ai/v1alpha1/namespaces/ns/variantautoscalings/va/status",
        ),
        (LEASES.path("ns"), "/apis/coordination.k8s.io/v1/namespaces/ns/leases"),
        (NODES.path("", "n"), "/api/v1/nodes/n"),
        (NODES.path("ignored", "n"), "/api/v1/nodes/n"),
    ],
)
def test_paths(path, expected):
    """The cases are the core group, named groups, subresources and cluster scope."""
    assert path == expected


def test_names_of_kinds():
    """Logs and metrics use the name; ``apiVersion`` is for objects."""
    assert (PODS.name, PODS.api_version) == ("pods", "v1")
    assert (DEPLOYMENTS.name, DEPLOYMENTS.api_version) == ("deployments.apps", "apps/v1")


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_name_never_leaves_its_place(namespace, name):
    """WVA escapes the characters of a name that have a meaning in a URL."""
    path = PODS.object_path(Key(namespace, name))
    parts = path.split("/")
    assert len(parts) == 7
    assert unquote(parts[4]) == namespace
    assert unquote(parts[6]) == name
    assert path.isascii()
    assert not set("?# ") & set(path)


@pytest.mark.parametrize("key", [Key("ns", ""), Key("", "p"), Key("", "")])
def test_an_object_needs_its_whole_name(key):
    """A path with an empty name would be that of the collection."""
    with pytest.raises(ValueError, match="Pod needs a name and a namespace"):
        PODS.object_path(key)


def test_a_cluster_scoped_object_needs_no_namespace():
    """Such an object needs only its name."""
    assert NODES.object_path(Key("", "n")) == "/api/v1/nodes/n"
    with pytest.raises(ValueError, match="Node needs"):
        NODES.object_path(Key("", ""))

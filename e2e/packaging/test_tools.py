"""The tools on which the other packaging tests rely."""

from __future__ import annotations

import pytest

from e2e import tools
from e2e.controlplane.build import TOOLS, BuildError, reported_version


@pytest.mark.parametrize("module", TOOLS, ids=lambda module: module.name)
def test_tools_are_the_pinned_ones(module):
    """Each tool reports the version that its go.mod pins."""
    assert reported_version(module, module.name) == module.version


def test_unknown_tool_is_an_error():
    """The error names a tool that ``build`` does not know."""
    with pytest.raises(BuildError, match="no tool named helmfile"):
        tools.binary("helmfile")


def test_failure_shows_command_and_output():
    """The error of a failed tool has the command and its output."""
    with pytest.raises(tools.ToolError, match=r"(?s)helm template nowhere.*exit code 1.*nowhere"):
        tools.output("helm", "template", "nowhere")

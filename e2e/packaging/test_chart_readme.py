"""The chart's README has the tables and commands of the chart."""

from __future__ import annotations

import re
import shlex
from string import Template

import wva
from e2e import tools
from e2e.manifests import CRD
from e2e.packaging import chart
from e2e.packaging.chart_readme import DEVIATIONS, FORMER, README, rendered
from e2e.packaging.chart_values import values

TEXT = README.read_text(encoding="utf-8")


def test_the_tables_are_current():
    """``python -m e2e.packaging.chart_readme`` changes nothing."""
    assert rendered(TEXT) == TEXT


def test_every_former_value_is_there_with_its_default_or_a_reason():
    """The listed deviations are the only ones."""
    now = {value.path: value.default for value in values()}
    assert FORMER.keys() <= now.keys()
    assert {path for path, default in FORMER.items() if now[path] != default} == DEVIATIONS.keys()


def test_every_key_that_is_written_exists():
    """Every key in prose, commands and examples is one of the chart's values."""
    known = {value.path for value in values()} | {"wva.baseName", "wva.modelName"}
    written = re.findall(r"(?<![-/\w.])((?:wva|hpa|va|llmd|vllmService|keda|controller)\.[A-Za-z.]*[A-Za-z])", TEXT)
    unknown = {path for path in written if not any(f"{key}.".startswith(f"{path}.") for key in known)}
    assert unknown == {"wva.metrics.serviceMonitor.labels.release", "wva.llmd.ai"}


def test_every_link_leads_somewhere():
    """Each link of the README names an existing file or section."""
    titles = re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    headings = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert links
    for link in links:
        path, _, section = link.partition("#")
        assert (README.parent / path).exists() if path else section in headings, link


def test_the_way_beside_what_one_has_makes_a_variant_first_and_its_scaler_last():
    """The commands of the page about installing render: a variant that nothing follows, then the HPA to take over."""
    page = (README.parents[2] / "docs" / "install.md").read_text(encoding="utf-8")
    section = page.partition("\n## Try it beside what you have\n")[2].partition("\n## ")[0].replace("\\\n", "")
    shadow, over, back = re.findall(r"^helm upgrade .*$", section, re.MULTILINE)
    names = {"DEPLOYMENT": "chat", "MODELS_NS": "models", "MODEL": "acme/chat", "WVA_NS": chart.NAMESPACE}

    def rendered_with(*more: str) -> dict[str, chart.Body]:
        words = shlex.split(Template(shadow).substitute(names))
        assert words[:5] == ["helm", "upgrade", "-i", "chat", f"charts/{chart.CHART.name}"]
        text = tools.output("helm", "template", "chat", chart.CHART, *words[5:], *more)
        return {item["kind"]: item for item in chart.parsed(text)}

    first = rendered_with()
    assert first.keys() == {"VariantAutoscaling", "PodMonitor"}
    assert first["VariantAutoscaling"]["spec"]["scaleTargetRef"]["name"] == "chat"

    def changes(command: str) -> list[str]:
        """Return the words after the values that are kept; what follows a ``#`` is for the reader."""
        return shlex.split(command.partition(" --reset-then-reuse-values ")[2], comments=True)

    taken = rendered_with(*changes(over))
    assert taken.keys() == {*first, "HorizontalPodAutoscaler"}
    bounds = taken["HorizontalPodAutoscaler"]["spec"]
    assert (bounds["minReplicas"], bounds["maxReplicas"]) == (2, 6)
    assert rendered_with(*changes(back)).keys() == first.keys()


def test_the_version_is_that_of_the_program():
    """Chart, image and program have one version."""
    assert chart.metadata()["appVersion"] == chart.metadata()["version"] == wva.__version__


def test_the_definition_is_the_shipped_one():
    """The chart has the same CustomResourceDefinition as the manifests."""
    (file,) = (chart.CHART / "crds").iterdir()
    assert file.read_text(encoding="utf-8") == CRD.read_text(encoding="utf-8")

"""Checks the sources of the scripts with shellcheck, against the chart, and against the page of their variables."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from e2e import tools
from e2e.packaging.installing import DEPLOY, Machine, node
from e2e.packaging.recorded_tool import CERTIFICATE

ROOT = DEPLOY.parent
SCRIPTS = [*sorted(DEPLOY.rglob("*.sh")), ROOT / ".ci" / "run"]
SETTINGS = (DEPLOY / "lib" / "settings.sh").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "install-script.md").read_text(encoding="utf-8")
CHART = str(ROOT / "charts" / "workload-variant-autoscaler")


def table(function: str) -> list[str]:
    """Return the first words of the table that a function of the settings prints."""
    body = SETTINGS.partition(f"{function}() {{")[2].partition("TABLE'\n")[2].partition("\nTABLE")[0]
    return [line.split()[0] for line in body.splitlines()]


def documented(heading: str) -> set[str]:
    """Return the variables in the first column of the table below a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\|(.*?)\|", section, re.MULTILINE)
    return {name for cell in rows for name in re.findall(r"`([A-Z][A-Z0-9_]+)`", cell)}


def test_shellcheck_finds_nothing():
    """Shellcheck finds nothing in the scripts and the files that they source. Each exception has a reason beside it."""
    program = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or shutil.which("shellcheck")
    assert program, "shellcheck is not installed: it comes with the dev extra"
    done = subprocess.run([program, *SCRIPTS], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout + done.stderr == ""
    assert len(SCRIPTS) > 10


def test_every_variable_is_documented_and_the_other_way_round():
    """The page lists all variables that the scripts read, and those that only cause a warning."""
    assert documented("Variables") == set(table("known_settings"))
    assert documented("Variables of the original without effect") == set(table("ignored_settings"))


@pytest.mark.parametrize("name", table("known_settings"))
def test_every_variable_is_used(name: str):
    """Each variable that is checked and documented is also used."""
    elsewhere = "".join(script.read_text(encoding="utf-8") for script in SCRIPTS if script.name != "settings.sh")
    elsewhere += SETTINGS.partition("check_settings()")[2]
    assert re.search(rf"\b{name}\b", elsewhere)


def test_every_kind_of_value_has_words_and_a_check(tmp_path: Path):
    """Otherwise a script would accept a wrong value, or refuse it without the expected form."""
    body = SETTINGS.partition("known_settings() {")[2].partition("TABLE'\n")[2].partition("\nTABLE")[0]
    for name, kind in (line.split() for line in body.splitlines()):
        assert len(re.findall(rf"^  {kind}\)", SETTINGS, re.MULTILINE)) == 2, f"{name} {kind}"
    wrong = {name: "*" for name in table("known_settings") if name not in {"ENVIRONMENT", "CLUSTER_TYPE", "UNDEPLOY"}}
    outcome = Machine(tmp_path).run(**wrong)
    named = {line.removeprefix("ERROR: ").partition("=")[0] for line in outcome.err.splitlines()}
    assert named == set(wrong)


def test_what_has_no_effect_is_said_once_each(tmp_path: Path):
    """The warning has the reason, and never the value."""
    ignored = table("ignored_settings")
    outcome = Machine(tmp_path).run("--undeploy", "--dry-run", SKIP_CHECKS="true", **dict.fromkeys(ignored, "my-value"))
    assert outcome.code == 0, outcome.err
    said = re.findall(r"^WARNING: (\w+) is set and has no effect: .+", outcome.err, re.MULTILINE)
    assert said == ignored
    assert "my-value" not in outcome.out + outcome.err


@pytest.mark.parametrize("environment", ["kubernetes", "openshift", "kind-emulator"])
def test_the_chart_takes_the_values(tmp_path: Path, environment: str):
    """The real Helm renders the real chart with these values, without an unknown key or a wrong type."""
    given = tmp_path / "given.crt"
    given.write_text(CERTIFICATE, encoding="utf-8")
    machine = Machine(tmp_path / "machine", nodes=[node("one", nvidia="NVIDIA-A100-SXM4-80GB")])
    outcome = machine.run(
        "-e", environment, SKIP_CHECKS="true", PROM_CA_CERT_PATH=str(given), IMG="host:5000/wva:1.2", LLMD_NS="models",
        CONTROLLER_INSTANCE="pr-1", WVA_LOG_LEVEL="warn", WVA_RECONCILE_INTERVAL="90s", NAMESPACE_SCOPED="false",
        SLO_TPOT="20", SLO_TTFT="900", VLLM_SVC_ENABLED="true", VLLM_SVC_NODEPORT="30001", HPA_MIN_REPLICAS="2",
        HPA_STABILIZATION_SECONDS="60", ENABLE_SCALE_TO_ZERO="true", SKIP_TLS_VERIFY="false", DEPLOY_VA="true",
        DEPLOY_HPA="true", WVA_IMAGE_PULL_POLICY="Always", MODEL_ID="a/b", LLM_D_MODELSERVICE_NAME="chat",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    call = outcome.release("workload-variant-autoscaler")
    words = call.words[call.words.index(CHART) + 1 :]
    rendered = tools.output("helm", "template", "wva", CHART, *words, stdin=call.stdin)
    items = [item for item in yaml.safe_load_all(rendered) if item]
    deployment = next(item for item in items if item["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "host:5000/wva:1.2"
    scaler = next(item for item in items if item["kind"] == "HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"]["name"] == "chat-decode"
    assert scaler["spec"]["minReplicas"] == 2
    variant = next(item for item in items if item["kind"] == "VariantAutoscaling")
    assert (variant["metadata"]["namespace"], variant["spec"]["modelID"]) == ("models", "a/b")
    assert "of the script" in rendered

"""The keys, flags and log texts in the prose of the pages exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.rendering import DOCS
from wva.config import Settings
from wva.config.declare import declarations

ROOT = DOCS.parent
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
KEYS = {key for field in declarations(Settings).values() for key in field.keys}
FLAGS = {f"--{flag}" for field in declarations(Settings).values() for flag in field.flags}
PREFIXES = ("PROMETHEUS_", "WVA_", "LEADER_", "METRICS_", "WEBHOOK_", "GLOBAL_", "EPP_", "EXPERIMENTAL_", "LOG_")
NOT_OURS = {"WVA_VECTORS", "PROMETHEUS_DISABLE_CREATED_SERIES"}
"""Variables of the tests, and one of vLLM. Those of the end-to-end tests start with WVA_E2E."""
INSTALL_SCRIPT = set(
    re.findall(
        r"^([A-Z][A-Z0-9_]+) ", (ROOT / "deploy" / "lib" / "settings.sh").read_text(encoding="utf-8"), re.MULTILINE
    )
)
"""Variables of deploy/install.sh; e2e/packaging checks them against their own page."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_key_in_the_text_exists(page):
    """Every word in capitals that starts like a setting is the key of a setting."""
    words = set(re.findall(r"`([A-Z][A-Z0-9_]+)(?:=[^`]*)?`", page.read_text(encoding="utf-8")))
    named = {word for word in words if word.startswith(PREFIXES) and not word.endswith("_")}
    assert {word for word in named - KEYS - NOT_OURS - INSTALL_SCRIPT if not word.startswith("WVA_E2E")} == set()


def test_every_flag_in_the_text_of_the_configuration_exists():
    """Every flag in the text exists. Another test checks the tables."""
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(--[a-z][a-z0-9-]+)", text))
    others = {
        "--flag",
        "--output",
        "--field-selector",
        "--verb",
        "--non-resource-url",
        "--clusterrole",
        "--serviceaccount",
    }
    assert named - FLAGS - others == set()


def test_every_log_text_of_the_configuration_is_written_somewhere():
    """The code contains each quoted log text, because operators search the logs for it."""
    section = (DOCS / "configuration.md").read_text(encoding="utf-8").split("## Changes while the process runs")[1]
    texts = re.findall(r'^"(Updated [^"]+)"', section, re.MULTILINE)
    folder = ROOT / "wva" / "config"
    source = "".join((folder / name).read_text(encoding="utf-8") for name in ("keys.py", "load.py"))
    assert len(texts) == 3
    assert all(f'"{text}"' in source for text in [*texts, "Attempted to change immutable parameters"])
    assert "Attempted\nto change immutable parameters" in section


OF_THE_ORIGINAL = {
    "PROMETHEUS_METRICS_CACHE_ENABLED": True,
    "PROMETHEUS_METRICS_CACHE_TTL": 30.0,
    "PROMETHEUS_METRICS_CACHE_CLEANUP_INTERVAL": 60.0,
    "PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL": 30.0,
    "PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD": 60.0,
    "PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD": 120.0,
    "PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD": 300.0,
    "PROMETHEUS_METRICS_CACHE_MAX_SIZE": 0,
}
"""Defaults of the cache settings as the Go controller declared them."""


def test_a_cache_default_that_is_not_the_original_one_has_its_reason_on_the_page():
    """The page explains each default of the cache that differs from the original's."""
    section = (DOCS / "configuration.md").read_text(encoding="utf-8").split("## The cache of answers")[1]
    ours = {key: field.default for field in declarations(Settings).values() for key in field.keys}
    others = {key for key, default in OF_THE_ORIGINAL.items() if ours[key] != default}
    assert others == set(re.findall(r"declared `(\w+)=30s` as its default and did not use it", section))

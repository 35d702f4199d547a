"""Objects from files: YAML or JSON, several documents each, kubectl's lists, values of the adapter's chart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec
import yaml

from wva.api import wire
from wva.api.core import ConfigMap, Lease
from wva.api.meta import Key, ObjectMeta
from wva.migration.finding import Finding, Severity
from wva.migration.objects import WORKLOADS, Autoscaler, Inventory, Scaled, Values, Variant, Workload

STANDARD_INPUT: Final = "-"
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_MAX_BYTES: Final = 16 * 1024 * 1024
_DEFAULT_NAMESPACE: Final = "default"
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Reader = Callable[[Any], None]


class UnreadableError(Exception):
    """A file cannot be read at all; the message names it and says why."""


class Manifests:
    """Collects an Inventory from documents; what does not decode becomes a finding."""

    def __init__(self, namespace: str = _DEFAULT_NAMESPACE) -> None:
        """Begin with nothing. Objects that name no namespace are taken to be in ``namespace``."""
        self._namespace = namespace
        self.inventory = Inventory()
        self.findings: list[Finding] = []
        found = self.inventory
        self._readers: dict[tuple[str, str], Reader] = {
            ("llmd.ai", "VariantAutoscaling"): _appender(found.variants, Variant),
            ("autoscaling", "HorizontalPodAutoscaler"): _appender(found.autoscalers, Autoscaler),
            ("keda.sh", "ScaledObject"): _appender(found.scaled_objects, Scaled),
            (WORKLOADS.group, WORKLOADS.kind): _appender(found.workloads, Workload),
            ("", "ConfigMap"): _appender(found.config_maps, ConfigMap),
            ("coordination.k8s.io", "Lease"): _appender(found.leases, Lease),
        }

    def read(self, paths: Iterable[str], standard_input: TextIO) -> None:
        """Read files, folders (all YAML and JSON files in them) and ``-``. Raises UnreadableError."""
        for path in paths:
            if path == STANDARD_INPUT:
                self._read_text(standard_input.read(_MAX_BYTES + 1), STANDARD_INPUT)
            else:
                for file in _files(Path(path)):
                    self._read_text(_text(file), str(file))

    def _read_text(self, text: str, origin: str) -> None:
        if len(text) > _MAX_BYTES:
            raise UnreadableError(f"{origin}: expected at most {_MAX_BYTES // 1024 // 1024} MiB")
        try:
            for document in yaml.load_all(text, Loader=_LOADER):
                self._take(document, origin)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UnreadableError(f"{origin}: expected YAML or JSON (a chart is rendered first): {reason}") from error

    def _take(self, document: Any, origin: str) -> None:
        if not isinstance(document, dict):
            return
        kind = str(document.get("kind", ""))
        items = document.get("items")
        if kind.endswith("List") and isinstance(items, list):
            for item in items:
                self._take(item, origin)
            return
        group, _, version = str(document.get("apiVersion", "")).partition("/")
        reader = self._readers.get((group if version else "", kind))
        if reader is not None:
            self._decode(reader, document, kind, origin)
        elif not kind:
            self._take_values(document, origin)

    def _decode(self, reader: Reader, document: dict[str, Any], kind: str, origin: str) -> None:
        metadata = document.get("metadata")
        named = metadata if isinstance(metadata, dict) else {}
        key = Key(str(named.get("namespace") or self._namespace), str(named.get("name", "")))
        try:
            reader({**wire.without_nulls(document), "metadata": {**wire.without_nulls(named), **key._asdict()}})
        except (msgspec.ValidationError, ValueError) as error:
            problem = f"cannot be read: {error} (in {origin})"
            self.findings.append(Finding(Severity.MUST, kind, key, problem, "mend the field that is named"))

    def _take_values(self, document: dict[str, Any], origin: str) -> None:
        rules = document.get("rules")
        external = rules.get("external") if isinstance(rules, dict) else None
        if isinstance(external, list):
            entries = [rule for rule in external if isinstance(rule, dict)]
            self.inventory.values.append(Values(ObjectMeta(name=origin), entries))


def _appender(items: list[Any], type_: type[Any]) -> Reader:
    return lambda document: items.append(msgspec.convert(document, type_, strict=False))


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    else:
        yield path


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise UnreadableError(f"{file}: expected at most {_MAX_BYTES // 1024 // 1024} MiB")
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UnreadableError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{file}: expected text in UTF-8") from error

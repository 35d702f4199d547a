"""Objects from files: YAML or JSON, several documents each, kubectl's lists, values of the adapter's chart."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec
import yaml

from wva.api import wire
from wva.api.meta import Key
from wva.command_error import CommandError
from wva.migration.objects import RESOURCES, Finding, FoundObjects, Subject

STANDARD_INPUT: Final = "-"
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_MAX_BYTES: Final = 16 * 1024 * 1024
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Manifests:
    """Collects objects from documents; what does not decode becomes a finding."""

    def __init__(self, namespace: str = "default") -> None:
        """Begin with nothing. Objects that name no namespace are taken to be in ``namespace``."""
        self._namespace = namespace
        lists: dict[str, Any] = {field: [] for field in RESOURCES}
        self._known = {(each.group, each.kind): (lists[field], each.type) for field, each in RESOURCES.items()}
        self.objects = FoundObjects(**lists)
        self.findings: list[Finding] = []

    def read(self, paths: Iterable[str], standard_input: TextIO) -> None:
        """Read files, folders (all YAML and JSON files in them) and ``-``. Raises CommandError."""
        for name in paths:
            if name == STANDARD_INPUT:
                self._read_text(standard_input.read(_MAX_BYTES + 1), STANDARD_INPUT)
                continue
            path = Path(name)
            files = [path]
            if path.is_dir():
                files = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
            for file in files:
                try:
                    if file.stat().st_size > _MAX_BYTES:
                        raise CommandError(f"{file}: expected at most {_MAX_BYTES // 1024 // 1024} MiB")
                    text = file.read_text(encoding="utf-8")
                except OSError as error:
                    raise CommandError(f"{file}: {error.strerror}") from error
                except UnicodeDecodeError as error:
                    raise CommandError(f"{file}: expected text in UTF-8") from error
                self._read_text(text, str(file))

    def _read_text(self, text: str, origin: str) -> None:
        if len(text) > _MAX_BYTES:
            raise CommandError(f"{origin}: expected at most {_MAX_BYTES // 1024 // 1024} MiB")
        try:
            for document in yaml.load_all(text, Loader=_LOADER):
                self._take(document, origin)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())[:200]
            raise CommandError(f"{origin}: expected YAML or JSON (a chart is rendered first): {reason}") from error

    def _take(self, document: Any, origin: str) -> None:
        """Take a document, or each item of a list of kubectl."""
        if not isinstance(document, dict):
            return
        kind, items = str(document.get("kind", "")), document.get("items")
        if kind.endswith("List") and isinstance(items, list):
            for item in items:
                self._take(item, origin)
            return
        group, _, version = str(document.get("apiVersion", "")).partition("/")
        known = self._known.get((group if version else "", kind))
        if known is not None:
            metadata = document.get("metadata")
            named = metadata if isinstance(metadata, dict) else {}
            key = Key(str(named.get("namespace") or self._namespace), str(named.get("name", "")))
            whole = {**wire.without_nulls(document), "metadata": {**wire.without_nulls(named), **key._asdict()}}
            objects, type_ = known
            try:
                objects.append(msgspec.convert(whole, type_, strict=False))
            except (msgspec.ValidationError, ValueError) as error:
                problem = f"cannot be read: {error} (in {origin})"
                self.findings.append(Subject(kind, key).must(problem, "mend the field that is named"))
        elif not kind:
            # Without a kind it may be the values of the adapter's chart.
            rules = document.get("rules")
            external = rules.get("external") if isinstance(rules, dict) else None
            if isinstance(external, list):
                self.objects.values.append((origin, [rule for rule in external if isinstance(rule, dict)]))

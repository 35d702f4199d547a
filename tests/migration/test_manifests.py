"""``wva migrate`` reads folders, lists of kubectl and values of a chart, and ignores other documents."""

from __future__ import annotations

import io
import json

import pytest
import yaml

from wva.api.meta import Key
from wva.command_error import CommandError
from wva.migration import check
from wva.migration.objects import Manifests


def read(*paths, stdin=""):
    """Read files into a new collection."""
    manifests = Manifests()
    manifests.read([str(path) for path in paths], io.StringIO(stdin))
    return manifests


def test_folder_is_read_with_its_folders(tmp_path, sound):
    """YAML and JSON files are read, also in subfolders; other files are not."""
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "hpa.yaml").write_text(yaml.safe_dump(sound["hpa"]), encoding="utf-8")
    (inner / "variant.json").write_text(json.dumps(sound["variant"]), encoding="utf-8")
    (tmp_path / "README.md").write_text("{", encoding="utf-8")
    found = read(tmp_path).objects
    assert [len(found.autoscalers), len(found.variants), found.size] == [1, 1, 2]


def test_list_of_kubectl_is_unpacked(sound):
    """``kubectl get -o yaml`` prints a List; its items are read."""
    whole = {"apiVersion": "v1", "kind": "List", "items": list(sound.values())}
    assert read("-", stdin=yaml.safe_dump(whole)).objects.size == len(sound)


def test_namespace_that_is_not_written_is_default(sound):
    """An object without a namespace is in the namespace ``default``, as for kubectl."""
    del sound["variant"]["metadata"]["namespace"]
    (variant,) = read("-", stdin=yaml.safe_dump(sound["variant"])).objects.variants
    assert variant.metadata.key == Key("default", "chat-va")


def test_values_of_the_adapter_chart(tmp_path):
    """The rules are found in a values file, too; the findings name the file."""
    file = tmp_path / "values.yaml"
    rule = {
        "seriesQuery": "wva_desired_replicas",
        "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    }
    file.write_text(yaml.safe_dump({"rules": {"external": [rule]}}), encoding="utf-8")
    manifests = read(file)
    findings = check(manifests.objects, now=0.0)
    assert {(finding.kind, finding.key.name) for finding in findings} == {("prometheus-adapter values", str(file))}
    assert ["sums" in finding.problem for finding in findings] == [True, False]
    assert "takes the number from every page" in findings[1].problem


@pytest.mark.parametrize("text", ["", "---\n---\n", "[]", "text", "kind: Service\napiVersion: v1\n", "a: 1\n"])
def test_other_documents_are_left_alone(text):
    """Empty documents, and kinds that the migration does not check, give no finding."""
    manifests = read("-", stdin=text)
    assert (manifests.objects.size, manifests.findings) == (0, [])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: {{ .Values.x }}\n", "a chart is rendered first"),
        ("a: [", "expected YAML"),
        ("a: !!python/name:os.system", "expected YAML"),
    ],
)
def test_what_is_no_yaml_is_named(tmp_path, text, reason):
    """If a file cannot be parsed, the error names it."""
    file = tmp_path / "bad.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CommandError, match=reason) as caught:
        read(file)
    assert str(file) in str(caught.value)


def test_missing_file_is_named(tmp_path):
    """A path that does not exist is an error."""
    with pytest.raises(CommandError, match="No such file"):
        read(tmp_path / "absent.yaml")


def test_binary_file_is_named(tmp_path):
    """A file that is not text is an error that names the file."""
    file = tmp_path / "binary.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CommandError, match="UTF-8"):
        read(file)

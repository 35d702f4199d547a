"""The builder of servers and tools: its messages when the module registry refuses a module, or code does not compile.

The registry is one on loopback that refuses everything; the Go toolchain is the real one, with an empty module cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from e2e.controlplane import build
from e2e.controlplane.build import Module, NotBuiltError
from e2e.serving import serving

_LIBRARY = "example.test/library"


class _Refusal(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(403, "Forbidden")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Point Go at a registry that answers every request with 403, and the builder at empty folders."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refusal)
    url = f"http://127.0.0.1:{server.server_port}"
    modules = tmp_path / "module-cache"
    for name, value in {"GOPROXY": url, "GOMODCACHE": str(modules), "GOFLAGS": "-mod=mod", "GONOSUMDB": "*"}.items():
        monkeypatch.setenv(name, value)
    for name in ("WVA_E2E_UNAVAILABLE", "WVA_E2E_BIN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WVA_E2E_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "MODULES", tmp_path)
    with serving(server):
        yield url


def _program(folder: Path, name: str, source: str, *, requires: str = "") -> Module:
    """Write a Go program and describe it; its own folder is the module."""
    (folder / name).mkdir()
    requirement = f"require {requires} v1.2.3\n" if requires else ""
    (folder / name / "go.mod").write_text(f"module wva.local/{name}\n\ngo 1.25\n\n{requirement}")
    (folder / name / "go.sum").write_text("")
    (folder / name / "main.go").write_text(source)
    return Module(name=name, path=requires, packages={name: "."}, release="1.2.3")


def _refused(folder: Path) -> Module:
    source = f'package main\n\nimport "{_LIBRARY}"\n\nfunc main() {{ library.Run() }}\n'
    return _program(folder, "refused", source, requires=_LIBRARY)


def _broken(folder: Path) -> Module:
    return _program(folder, "broken", "package main\n\nfunc main() { return 1 }\n")


def _good(folder: Path) -> Module:
    return _program(folder, "good", 'package main\n\nfunc main() { println("v1.2.3") }\n')


def test_refused_module_is_told_in_one_line(tmp_path, registry, monkeypatch, capsys):
    """The exit code is 3. One line names module, version and the registry's words. All other modules are built."""
    good = _good(tmp_path)
    monkeypatch.setattr(build, "ALL", (_refused(tmp_path), good))
    monkeypatch.setattr(build, "reported_version", lambda *_: "1.2.3")

    assert build.main() == 3

    (line,) = [line for line in capsys.readouterr().err.splitlines() if "cannot be had" in line]
    assert line.startswith(f"refused cannot be had: module {_LIBRARY} v1.2.3: ")
    assert registry in line
    assert "403 Forbidden" in line
    assert good.binary("good").exists()


def test_what_does_not_compile_is_another_error(tmp_path, monkeypatch, capsys):
    """The exit code is 1, with the compiler's words, even if the registry refuses another module."""
    monkeypatch.setattr(build, "ALL", (_refused(tmp_path), _broken(tmp_path)))

    assert build.main() == 1

    said = capsys.readouterr().err
    assert "too many return values" in said
    assert f"module {_LIBRARY} v1.2.3" in said


def test_what_takes_too_long_is_told_in_one_line(tmp_path, monkeypatch, capsys):
    """The exit code is that of what does not compile. The line says what took how long."""
    monkeypatch.setattr(build, "ALL", (_good(tmp_path),))
    monkeypatch.setattr(build, "_BUILD_TIMEOUT_SECONDS", 0.01)

    assert build.main() == 1

    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"go build for good in {tmp_path / 'good'} did not end within 0.01 s, and was stopped"


def test_unreachable_registry_counts_as_refusal(tmp_path, monkeypatch, capsys):
    """The builder treats a registry that does not answer like one that refuses a module."""
    monkeypatch.setenv("GOPROXY", "http://127.0.0.1:1")
    monkeypatch.setattr(build, "ALL", (_refused(tmp_path),))

    assert build.main() == 3
    assert "connection refused" in capsys.readouterr().err


def test_refused_module_may_be_skipped(tmp_path, monkeypatch, capsys):
    """With ``WVA_E2E_UNAVAILABLE=skip`` the message stays and the exit code is 0. A compiler's error still fails."""
    monkeypatch.setenv("WVA_E2E_UNAVAILABLE", "skip")
    refused = _refused(tmp_path)
    monkeypatch.setattr(build, "ALL", (refused,))
    assert build.main() == 0
    assert "refused cannot be had" in capsys.readouterr().err

    monkeypatch.setattr(build, "ALL", (refused, _broken(tmp_path)))
    assert build.main() == 1


def test_unknown_way_to_treat_the_unavailable_is_refused(monkeypatch, capsys):
    """The error names the one value that the setting takes."""
    monkeypatch.setenv("WVA_E2E_UNAVAILABLE", "ignore")
    assert build.main() == 1
    assert "WVA_E2E_UNAVAILABLE is 'ignore'; the only value it takes is 'skip'" in capsys.readouterr().err


def test_own_binaries_are_used_as_they_are(tmp_path, monkeypatch):
    """With WVA_E2E_BIN the builder takes existing binaries, and builds missing ones into the folder."""
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("WVA_E2E_BIN", str(own))
    refused, good = _refused(tmp_path), _good(tmp_path)
    with pytest.raises(NotBuiltError, match="not built yet: refused"):
        refused.binary("refused")

    (own / "refused").write_text("#!/bin/sh\n")

    assert build.build_all((refused, good)) == []
    assert refused.binary("refused") == own / "refused"
    assert good.binary("good") == own / "good"


def test_only_the_named_parts_are_built(tmp_path, monkeypatch, capsys):
    """Without a name, only the parts that every run needs are built. An unknown name is an error."""
    good, refused = _good(tmp_path), _refused(tmp_path)
    monkeypatch.setattr(build, "PARTS", {"good": (good,), "refused": (refused,)})
    monkeypatch.setattr(build, "ALL", ())
    monkeypatch.setattr(build, "reported_version", lambda *_: "1.2.3")

    assert build.main() == 0
    assert good.missing == ["good"]
    assert build.main(["good"]) == 0
    assert good.missing == []
    assert build.main(["good", "refused"]) == 3
    assert build.main(["sever"]) == 1

    assert "no part named sever; there are: good, refused" in capsys.readouterr().err

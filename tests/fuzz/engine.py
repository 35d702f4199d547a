"""Fuzzes one target with atheris: ``python -m tests.fuzz.engine TARGET WORK [libFuzzer's options]``.

WORK keeps the inputs that reach new code, and an input that fails as ``crash-...``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

from tests.fuzz import harness
from tests.fuzz.mutation import mutated

SLOWNESS = 10.0
"""Instrumented code is at most this many times slower."""

INSTRUMENTED = ["wva", "prometheus_client"]


def main():
    """Fuzz until libFuzzer ends the process."""
    name, work, *options = sys.argv[1:]
    harness.be_quiet()
    with atheris.instrument_imports(include=INSTRUMENTED):
        module = harness.target(name)
    words = sorted({word for word in module.words() if word})
    dictionary = Path(work) / "words.dict"
    dictionary.write_text("".join(f'"{_escaped(word)}"\n' for word in words))
    again = Path(work) / "again"
    again.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m tests.fuzz.engine {name} '{work}' \"$@\"\n")
    again.chmod(0o755)
    kept = Path(work) / "kept"
    kept.mkdir(exist_ok=True)

    def mutator(data, most, seed):
        return mutated(data, most=most, seed=seed, words=words, flip=atheris.Mutate)

    arguments = [
        str(again),  # libFuzzer starts a merge through its first argument
        f"-dict={dictionary}",
        f"-max_len={getattr(module, 'MOST_BYTES', harness.MOST_BYTES)}",
        f"-artifact_prefix={work}/",
        "-len_control=100",
        "-timeout=20",
        "-rss_limit_mb=2048",
        *options,
    ]
    folders = [str(kept), str(harness.CORPUS / name)]
    # libFuzzer writes new inputs into the first folder, and merges the other folders into it.
    arguments += reversed(folders) if "-merge=1" in options else folders
    atheris.Setup(
        arguments, lambda data: harness.play(module, data, slowness=SLOWNESS) and None, custom_mutator=mutator
    )
    atheris.Fuzz()


def _escaped(word):
    return "".join(f"\\x{byte:02x}" for byte in word.encode("utf-8", errors="surrogatepass"))


if __name__ == "__main__":
    main()

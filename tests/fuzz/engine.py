"""One target under atheris: ``python -m tests.fuzz.engine TARGET WORK [libFuzzer's options]``.

Inputs that reach something new are kept in WORK, and an input that fails is left there as ``crash-...``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

from tests.fuzz import harness
from tests.fuzz.mutation import mutated

SLOWNESS = 10.0
"""Code that counts its own branches is that much slower, at worst."""

INSTRUMENTED = ["wva", "prometheus_client"]


def main():
    """Fuzz until libFuzzer's options end it; never returns."""
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
        str(again),  # a merge starts itself by its first argument
        f"-dict={dictionary}",
        f"-max_len={getattr(module, 'MOST_BYTES', harness.MOST_BYTES)}",
        f"-artifact_prefix={work}/",
        "-len_control=100",
        "-timeout=20",
        "-rss_limit_mb=2048",
        *options,
    ]
    folders = [str(kept), str(harness.CORPUS / name)]
    # libFuzzer writes into the first folder; when it merges, that is where the others are merged into.
    arguments += reversed(folders) if "-merge=1" in options else folders
    atheris.Setup(
        arguments, lambda data: harness.play(module, data, slowness=SLOWNESS) and None, custom_mutator=mutator
    )
    atheris.Fuzz()


def _escaped(word):
    return "".join(f"\\x{byte:02x}" for byte in word.encode("utf-8", errors="surrogatepass"))


if __name__ == "__main__":
    main()

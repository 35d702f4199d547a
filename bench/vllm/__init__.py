"""The shipped controller on a real vLLM, which runs on the CPU with a tiny model: ``tox -e vllm``."""

"""Builds what is in the container image, without a container engine.

``python -m image.assemble DIRECTORY`` makes the files that the ``Containerfile`` lays over its base image: the program,
its dependencies as ``requirements/constraints.txt`` pins them, their bytecode, the entry point ``/manager`` and the
bill of materials. The end-to-end test runs the controller from a directory made by the same command.
"""

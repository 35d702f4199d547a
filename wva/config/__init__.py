"""The configuration: declares each key once, and turns texts into values in force.

``keys`` declares every key: open it to add a flag, a key of the main ConfigMap, or a field of an entry. The rest
is the same for every key: ``declare`` says what a declaration is, ``load`` merges flags, environment and main
ConfigMap, ``entries`` reads the entries of a ConfigMap (``yaml_text``), ``kinds`` turns them into values of
``wva.model.policy``, ``live`` keeps what is in force while the process runs, ``watch`` follows the ConfigMaps.

No text raises an exception here, and no fault is dropped in silence: WVA reports it with the value, the expected value
and the value that is in force instead.
"""

from __future__ import annotations

from wva.config.keys import Settings
from wva.config.load import Inputs, Loaded, Problem, fatal_problems, load

__all__ = ["Inputs", "Loaded", "Problem", "Settings", "fatal_problems", "load"]

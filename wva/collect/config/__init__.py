"""The ConfigMaps that say how to decide: text in, values of ``wva.model.policy`` out.

``reading`` makes mappings of YAML text. ``fields`` has the values that a field may have. ``entry`` defines an entry and
why one is rejected. ``layers`` has the entries of a namespace, and those that it takes over. One module for each kind
of ConfigMap builds on them: ``saturation``, ``scale_to_zero``, ``queueing``, ``service_classes``, ``accelerators``.
``names`` has the names of the ConfigMaps.

No text raises an exception here, and no fault is dropped in silence. An unusable value is an ``EntryError`` with the
value, the expected value and the value that is in force instead. A useless value is a warning.
"""

"""The ConfigMaps that say how to decide: text in, values of ``wva.model.policy`` out.

``reading`` makes mappings of YAML text, ``fields`` says what may stand in a field, ``entry`` what an entry is and why
one is rejected, ``layers`` what a namespace says itself and what it takes over. One module for each kind of ConfigMap
builds on them: ``saturation``, ``scale_to_zero``, ``queueing``, ``service_classes``, ``accelerators``. ``names`` says
under which names they are looked for.

Nothing here raises because of a text, and nothing is dropped in silence: what cannot be used is an ``EntryError`` with
what was found, what was expected and what is in force instead; what is merely useless is a warning.
"""

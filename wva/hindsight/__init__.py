"""Looking back: what past cycles were, why they decided so, and what would have made them decide otherwise.

A past cycle is one thing here, ``cycle.Cycle``: a ``Recording`` (its inputs and its decisions) and the outcome of
deciding on it. The controller that ran the cycle has this outcome; everybody else decides on the recording again.

- ``cycle``        the recording, deciding on it again, and which of several cycles was the last at a time
- ``recordings``   recordings in files: written by a controller, read by the commands
- ``recent``       the recordings that a running controller keeps in memory, for its pages
- ``timeline``     points of the last hours, for the lines of the console
- ``shadow``       what variants in shadow mode would have cost, summed up cycle by cycle
- ``explanation``  why a variant has its number; ``flips`` what would have given it another one
- ``replay``       recorded cycles decided again, in order, with their own memory or under another policy
- ``differences``  how two decisions on one cycle differ; ``comparison`` a whole replay, as text and as JSON
- ``report``       days of shadow mode, from Prometheus or from recordings

``cycle``, ``timeline``, ``shadow``, ``explanation``, ``flips``, ``replay``, ``differences`` are as pure as ``decide``.
"""

"""A replica as a queue: what it takes within latency targets.

docs/queueing-model.md says what is decided with it, docs/design/queueing-formulas.md how it computes. From the bottom
up: ``service`` (how long an engine takes), ``assured`` (the rate at which requests one by one meet targets), ``mixing``
(variants beside each other). Only ``assured`` needs numpy.
"""

"""The model-based optimizer: replicas as queues, sized by targets, allocated at the lowest cost (optimizer.md).

Everything but ``service`` (values) needs numpy and is imported only where that analyzer is selected. The way through:

- ``service``: parameters, request sizes, queues; ``chain``: their steady state; ``sizing``: targets to rates.
"""

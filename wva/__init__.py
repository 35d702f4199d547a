"""WVA, the Workload Variant Autoscaler, decides how many replicas each variant of an LLM service should have.

The way of the data, which is also the package map:

- ``kube``         watch streams fill typed caches, a work queue dispatches keys; knows nothing of variants
- ``controllers``  one reconciler per kind: cache -> status
- ``targets``      the kinds of scale targets: what they are, and which pods belong to them
- ``collect``      caches and Prometheus -> one immutable ``model.Snapshot`` per cycle
- ``prometheus``   the connection to Prometheus: authentication, queries, answers
- ``config``       flags, environment, ConfigMaps -> settings and ``model.Policy``; ``config.keys`` declares every key
- ``decide``       pure: Snapshot + Memory + Policy + now -> Decisions + Memory
- ``hindsight``    cycles that have been: recorded, repeated, explained, compared, summed up
- ``publish``      the ledger of decisions, the status patch, the ``wva_*`` series, the events
- ``optimizer``    the cycle of decisions, at each interval
- ``scale_from_zero``  what rests, which requests wait for it at the gateways, and its start
- ``serve``        the HTTP face: ``/metrics``, ``/healthz``, ``/readyz``
- ``api``          wire shapes and the definition of the ``VariantAutoscaling`` resource
- ``model``        the nouns of the domain
- ``sim``          the embedded world: Kubernetes API, Prometheus, HPA and a vLLM fleet in one process; its commands
- ``migration``    what to change before the Go controller's place is taken: looks, and writes nothing
- ``app``          the composition root; ``cli`` the commands of the controller

Imports point down only; import-linter holds the layers (``pyproject.toml``).
"""

from __future__ import annotations

__version__ = "0.6.0"

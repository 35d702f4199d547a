"""The HTTP face: ``/metrics`` over HTTPS, ``/healthz`` and ``/readyz``."""

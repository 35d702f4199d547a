"""Builds the immutable Snapshot of a cycle from the caches and from Prometheus."""

"""From caches and Prometheus to one immutable Snapshot of a cycle, and from ConfigMaps to a Policy."""

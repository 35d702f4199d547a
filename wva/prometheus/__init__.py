"""The connection to Prometheus: settings, authentication, queries, and decoded answers."""

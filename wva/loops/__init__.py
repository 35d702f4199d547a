"""Periodic drivers: when a cycle runs, not what it computes."""

"""``compatibility: v0.5``: what the Go controller v0.5.1 decided, from our Snapshot (docs/design/compatibility-v05.md).

``engine`` is the whole of it, to be read from top to bottom. It shares with the engine of today what no number depends
on: the conditions of a variant, the clock of its unfinished changes, the isolation of failing models, and a few words.
"""

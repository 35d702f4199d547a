"""Reconcilers, one file per kind: which events concern which keys, and what a key's object should look like."""

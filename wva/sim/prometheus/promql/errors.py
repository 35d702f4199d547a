"""Errors of queries."""

from __future__ import annotations


class PromqlError(Exception):
    """A query without an answer; the message is for the person who wrote it."""


class BadQueryError(PromqlError):
    """The text is not PromQL, or uses a part of PromQL that this evaluator lacks (HTTP 400, ``bad_data``)."""


class ExecutionError(PromqlError):
    """The query is fine, but the data does not allow an answer (HTTP 422, ``execution``)."""

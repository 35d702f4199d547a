"""The engine: a pure function (``pipeline.decide``) that does no I/O, reads no clock and writes no log."""

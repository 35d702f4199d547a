"""Effects out: the ledger of decisions, the status patch, the ``wva_*`` series and the events."""

"""The nouns of the domain: frozen records that compare by value, no I/O, no time."""

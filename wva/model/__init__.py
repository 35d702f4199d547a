"""The nouns of the domain: frozen dataclasses from the standard library only, no I/O, no time."""

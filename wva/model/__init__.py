"""The records of the domain: frozen, compared by value, without I/O and without a clock."""

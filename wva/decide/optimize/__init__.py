"""Second stage: which variant should change, and by how much."""

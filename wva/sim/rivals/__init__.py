"""Other ways to decide how many replicas there should be, to compare with."""

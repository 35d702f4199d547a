"""First stage: what the samples say of a model."""

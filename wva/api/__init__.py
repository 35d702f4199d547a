"""Wire shapes: msgspec structs with only the fields that are read, and the list of kinds they belong to."""

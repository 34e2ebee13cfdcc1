"""The making of the built-in model."""

"""The training of the built-in model."""

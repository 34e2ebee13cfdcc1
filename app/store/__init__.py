"""Where compiled constraints are kept."""

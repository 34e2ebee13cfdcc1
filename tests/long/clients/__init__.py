"""Clients of others in their default modes, each in its own environment. `make clients` runs them."""

"""Clients of others in their default modes, each in an environment of its own. `make clients` runs them."""

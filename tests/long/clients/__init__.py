"""Clients of others in their default modes, each in an own environment. `make clients` runs them."""

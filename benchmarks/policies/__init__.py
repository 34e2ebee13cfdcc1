"""Agents in public domains, under policies and without."""

"""Locks, installation and distributions."""

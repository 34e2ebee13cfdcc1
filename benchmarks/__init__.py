"""Measurements, and the making of the built-in model. Nothing here is imported by the service."""

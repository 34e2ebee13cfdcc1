"""ASGI middleware that every request passes before the application."""

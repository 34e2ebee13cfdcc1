"""ASGI middleware that every request passes before the application.

`request_log` gives each request an id, and counts, times and logs it. `security` checks host, origin and API key, and
sets the security headers. `body` reads the body within its limits and checks its JSON. Each class is plain ASGI, so
streams pass without a buffer.
"""

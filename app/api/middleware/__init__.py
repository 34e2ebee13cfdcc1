"""Plain ASGI middleware: access and security headers, bodies within their limits."""

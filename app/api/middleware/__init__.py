"""Plain ASGI middleware: the request log, access and security headers, bodies within their limits."""

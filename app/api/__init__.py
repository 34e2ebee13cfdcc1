"""HTTP in and out: routes, schemas, errors, streams and the middleware.

Each route reads its request, calls a use case of `app.service` and renders the outcome. Errors become problem details.
`openapi` assembles the document that the service publishes. The middleware is plain ASGI: security headers and access,
bodies within their limits, and the log of requests with the routes for metrics and health.
"""

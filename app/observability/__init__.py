"""Logs in JSON lines, Prometheus metrics, and optional OpenTelemetry traces.

No line holds a prompt, a constraint or a key. Metrics count what the service does with requests and jobs. Traces are
written where the SDK is installed and an exporter is set; otherwise they cost nothing.
"""

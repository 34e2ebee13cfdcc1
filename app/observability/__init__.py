"""Logs in JSON lines, Prometheus metrics, and optional OpenTelemetry traces.

No log line contains a prompt, a constraint or a key. Metrics count requests, jobs and their outcomes. Traces are
exported if an endpoint is set and the SDK is installed.
"""

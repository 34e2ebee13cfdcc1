"""Logs in JSON lines, Prometheus metrics, and optional OpenTelemetry traces."""

"""Metrics and events for the team's own monitoring: OpenTelemetry (OTLP) and Prometheus. No torch."""

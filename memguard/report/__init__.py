"""Recordings, post-mortems and forecasts as text and HTML."""

"""Exceptions that memguard raises for its own reasons; none reaches a training step."""

from __future__ import annotations


class MemGuardError(Exception):
    """A request that memguard cannot fulfil; the text says what happened, with the value, and what to do."""


class RecordingError(MemGuardError):
    """A recording that cannot be read: missing, not a recording, or of a newer format."""


class SnapshotError(MemGuardError):
    """A file that is not a memory snapshot, or that asks to run code when it is read."""

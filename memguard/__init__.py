"""memguard: a guard that rides along any PyTorch training loop."""

from __future__ import annotations

__version__ = "0.1.0"

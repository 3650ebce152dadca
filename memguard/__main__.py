"""``python -m memguard`` is the ``memguard`` command."""

from __future__ import annotations

import sys

from memguard.cli import main

if __name__ == "__main__":
    sys.exit(main())

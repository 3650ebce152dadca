"""Whether this commit can be released: ``python tools/check_release.py``; each line it prints is to be done first."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMED = ("pyproject.toml", "SECURITY.md", "CITATION.cff", ".github/ISSUE_TEMPLATE/config.yml", "README.md")
"""Files in which OWNER takes the place of whoever publishes the package."""


def todo(root: Path = ROOT) -> Iterator[str]:
    """What is left to do, in words."""
    for name in NAMED:
        if "OWNER" in (root / name).read_text():
            yield f"{name}: replace OWNER by the account or organization that publishes the package"
    found = re.search(r'__version__ = "([^"]+)"', (root / "memguard" / "__init__.py").read_text())
    version = found[1] if found is not None else "?"
    if not re.search(
        rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE
    ):
        yield f"CHANGELOG.md: give the section {version} its date, like ## {version} (2026-12-01)"
    if f"version: {version}" not in (root / "CITATION.cff").read_text():
        yield f"CITATION.cff: set version: {version} and date-released"
    fragments = sorted(path.name for path in (root / "changelog.d").glob("*.*.md"))
    if fragments:
        yield f"changelog.d: collect {', '.join(fragments)} with towncrier build --version {version}"
    tags = subprocess.run(["git", "tag", "--points-at", "HEAD"], capture_output=True, text=True, check=False, cwd=root)
    if f"v{version}" not in tags.stdout.split():
        yield f"git: tag this commit v{version}"


if __name__ == "__main__":
    left = list(todo())
    print("\n".join(left) if left else "Ready: build and upload (docs/releasing.md).")
    sys.exit(bool(left))

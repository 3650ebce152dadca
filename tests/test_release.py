"""What stands between a commit and a release, and the changelog that fragments become."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.check_release import NAMED, todo

ROOT = Path(__file__).parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that a release changes, in a repository of their own."""
    names = (*NAMED, "CHANGELOG.md", "memguard/__init__.py", "changelog.d/README.md")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    git(tmp_path, "init", "-q")
    return tmp_path


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=me", "-c", "user.email=me@example.com")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def test_what_is_left_to_do_is_listed_until_nothing_is(checkout: Path) -> None:
    """The owner's name, the date, the fragments and the tag; then the list is empty."""
    (checkout / "changelog.d" / "+more.added.md").write_text("More.\n")
    (checkout / "CHANGELOG.md").write_text("## 1.2.3 (not yet released)\n")
    (checkout / "memguard" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    left = " ".join(todo(checkout))
    assert all(name in left for name in ("pyproject.toml", "SECURITY.md", "CITATION.cff", "config.yml"))
    assert "+more.added.md" in left and "give the section 1.2.3 its date" in left and "tag this commit v1.2.3" in left
    (checkout / "changelog.d" / "+more.added.md").unlink()
    (checkout / "CHANGELOG.md").write_text("## 1.2.3 (2027-01-31)\n")
    for name in NAMED:
        path = checkout / name
        path.write_text(path.read_text().replace("OWNER", "somebody").replace("version: 0.2.0", "version: 1.2.3"))
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "release")
    git(checkout, "tag", "v1.2.3")
    assert list(todo(checkout)) == []


def test_fragments_become_a_section_above_the_last_one(checkout: Path) -> None:
    """Sorted by what they are, whole, and in Markdown."""
    pytest.importorskip("towncrier")
    (checkout / "changelog.d" / "+line.fixed.md").write_text("The progress line is cleared.\n")
    (checkout / "changelog.d" / "38.added.md").write_text("`memguard.current()` is the open run.\n")
    git(checkout, "add", ".")
    command = [sys.executable, "-m", "towncrier", "build", "--version", "9.9.9", "--date", "2027-01-31", "--yes"]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    text = (checkout / "CHANGELOG.md").read_text()
    begun = text.index("## 9.9.9 (2027-01-31)")
    section = text[begun : text.index("## 0.2.0")]
    assert section.index("### Added") < section.index("`memguard.current()` is the open run. (#38)")
    assert section.index("### Fixed") < section.index("- The progress line is cleared.")
    assert text.index("Keep a Changelog") < begun
    assert not list((checkout / "changelog.d").glob("*.*.md"))


def test_every_fragment_is_of_a_known_sort() -> None:
    """One of another name would be left out of the changelog."""
    sorts = ("added", "changed", "fixed")
    names = [path.name for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md"]
    assert [name for name in names if name.split(".")[-2:] not in [[sort, "md"] for sort in sorts]] == []

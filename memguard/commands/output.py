"""Output of commands: text for any stdout, and files that are checked before the work begins."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from memguard.errors import MemGuardError
from memguard.text.terminal import fold_lines, printable, terminal_of
from memguard.text.urls import is_url


def tell(text: str = "", *, safe: bool = False) -> None:
    """Prints text on stdout, folded at the width of the terminal, if it is one; rows of tables stay whole.

    Args:
        text: What to print.
        safe: Whether it was made printable and folded already, and its escape sequences are memguard's own colours.
    """
    width, _ = terminal_of(sys.stdout)
    tell_data(text if safe else "\n".join(fold_lines(printable(text), width)))


def tell_data(text: str) -> None:
    """Prints JSON, or a script, on stdout as it is, with codes behind a backslash for what its encoding lacks."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def writable(name: str | None) -> Path | None:
    """The file that an option names, None where it names none.

    Raises:
        MemGuardError: It could not be written, as far as can be told without writing it.
    """
    if name is None:
        return None
    path = Path(name)
    if path.is_dir():
        reason = "it is a directory"
    elif not path.parent.is_dir():
        reason = f"there is no directory {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = "permission denied"
    else:
        return path
    raise MemGuardError(f"{name} cannot be written: {reason}")


def check_directory(name: str | None) -> None:
    """Whether a directory that an option names can be written to, or made; of a URL that is not asked.

    Raises:
        MemGuardError: It cannot, as far as can be told without making it.
    """
    if name is None or is_url(name):
        return
    path = Path(name).absolute()
    there = next(each for each in (path, *path.parents) if each.exists())
    if not there.is_dir():
        raise MemGuardError(f"{name} cannot be a directory: {there} is a file")
    if not os.access(there, os.W_OK):
        raise MemGuardError(f"{name} cannot be written: permission denied in {there}")

"""A line of the user's program in words: ``train.py:41``, or a notebook cell."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Final

_CELL: Final = re.compile(r"<ipython-input-(\d+)-\w+>")
_KERNEL: Final = re.compile(r"ipykernel_\d+[\\/]\d+\.py$")


def place_text(file: str, line: int | None, *, whole: bool = False) -> str:
    """Like ``"train.py:41"`` or ``"Cell In[2], line 5"``.

    Args:
        file: As the code object has it.
        line: None where it is not known.
        whole: Whether to give the file's whole path.
    """
    cell = _cell_of(file)
    if cell is not None:
        return cell + (f", line {line}" if line else "")
    return (file if whole else os.path.basename(file)) + (f":{line}" if line else "")


def _cell_of(file: str) -> str | None:
    """The cell that a file's name stands for; a kernel's own files are known to its shell alone, while it runs."""
    if found := _CELL.fullmatch(file):
        return f"Cell In[{found[1]}]"
    if not _KERNEL.search(file) or (module := sys.modules.get("IPython.core.getipython")) is None:
        return None
    try:
        shell: Any = module.get_ipython()
        label = shell.compile.format_code_name(file)
        return " ".join(label) if label else None
    except Exception:  # an older or another shell, which names no cells
        return None

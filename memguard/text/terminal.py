"""What a terminal shows: its width, its colours, folded lines, and one line that is rewritten in place."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterator
from typing import Final, TextIO, final

NARROWEST: Final = 40
"""Columns below which a text is not folded further."""
COLOURS: Final = {"critical": "1;31", "warning": "33", "info": "36"}
"""Of the severities, as the numbers of an escape sequence."""
_SIZE: Final = re.compile(r"(\d) (bytes|[KMGTP]iB)")
"""A number and its unit stay on one line."""

_ROW: Final = re.compile(r"\S {2,}\S")
"""Columns of a table, or code behind its place."""

_shown: list[StatusLine] = []
"""The status lines that are on a terminal now; each adds itself and takes itself away."""


def terminal_of(stream: TextIO | None) -> tuple[int | None, bool]:
    """How many columns a stream has, and whether it shows colours; None and False where it is no terminal.

    ``NO_COLOR`` and ``TERM=dumb`` are respected; ``COLUMNS`` sets the width.
    """
    if not is_terminal(stream):
        return None, False
    return shutil.get_terminal_size().columns, not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person may be reading a stream as it is written."""
    try:
        return stream is not None and stream.isatty()
    except (ValueError, AttributeError):  # closed, or of a program's own making
        return False


def fold(text: str, width: int | None, *, first: str = "", rest: str | None = None) -> list[str]:
    """One paragraph as lines of a terminal.

    Args:
        text: The paragraph, without ends of lines.
        width: Columns, at least `NARROWEST`; None writes one line.
        first: What the first line begins with.
        rest: What the others begin with; None is as many spaces.
    """
    if width is None or not text:
        return [first + text]
    lines = textwrap.wrap(
        _SIZE.sub("\\1\u00a0\\2", text),
        max(width, NARROWEST),
        initial_indent=first,
        subsequent_indent=" " * len(first) if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\u00a0", " ") for line in lines]


def fold_lines(text: str, width: int | None) -> list[str]:
    """Lines as lines of a terminal: prose is folded under its own indent, rows of tables and code stay as they are."""
    lines: list[str] = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        if width is None or len(line) <= width or _ROW.search(line.strip()):
            lines.append(line)
        else:
            lines += fold(line.strip(), width, first=indent, rest=indent + "  ")
    return lines


def coloured(text: str, severity: str, colours: bool) -> str:
    """A text in the colour of a severity, where colours are shown."""
    return f"\x1b[{COLOURS[severity]}m{text}\x1b[0m" if colours else text


@final
class StatusLine:
    """One line of a terminal that is rewritten in place, as progress is shown; silent where there is no terminal.

    Args:
        stream: The terminal; None is stderr.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self.shows = is_terminal(self._stream)
        self._width = 0

    def show(self, text: str) -> None:
        """Writes the text in place of the one before; what is wider than the terminal is cut off."""
        if not self.shows:
            return
        text = text[: shutil.get_terminal_size().columns - 1]
        self._write(text.ljust(self._width))
        self._width = len(text)
        if self not in _shown:
            _shown.append(self)

    def clear(self) -> None:
        """The line goes away."""
        if self._width:
            self._write(" " * self._width + "\r")
            self._width = 0
        if self in _shown:
            _shown.remove(self)

    def _write(self, text: str) -> None:
        self._stream.write("\r" + text)
        self._stream.flush()


@contextlib.contextmanager
def above_progress(stream: TextIO | None) -> Iterator[None]:
    """While a message is written: progress lines of ours and bars of tqdm are cleared; the bars come back below it."""
    if not is_terminal(stream):
        yield
        return
    while _shown:
        _shown[-1].clear()
    clears = getattr(getattr(sys.modules.get("tqdm"), "tqdm", None), "external_write_mode", None)
    with clears(file=stream) if clears is not None else contextlib.nullcontext():
        yield


# Text made safe for a terminal: no escape sequences, no invisible or reordering characters.

_UNSEEN = frozenset(
    {"Cc", "Cf", "Cs", "Zl", "Zp"}
)  # controls, invisible formatting, halves of characters, odd line ends


def printable(text: str) -> str:
    """The text, with codes like ``x1b`` behind a backslash for what would act instead of being seen."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(
        repr(each)[1:-1] if each not in "\n\t" and unicodedata.category(each) in _UNSEEN else each for each in text
    )


def one_line(text: str) -> str:
    """The text on one line: ends of lines and tabs are visible too, for a name of the user's may hold some."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")

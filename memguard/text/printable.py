"""Text made safe for a terminal: no escape sequences, no invisible or reordering characters."""

from __future__ import annotations

import unicodedata

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
    """Likewise, with ends of lines and tabs made visible too: a name of the user's may hold some."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")

"""Bytes to text and back: the only module that knows GiB."""

from __future__ import annotations

import re

GIB = 1024**3
MIB = 1024**2

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_LEAST_BARE = 10**6
"""A number without a unit is bytes; nobody means so few."""
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kmgtp]?)(i?b)?\s*", re.IGNORECASE)


def format_bytes(nbytes: float | None) -> str:
    """A size for people: binary units, about three figures, ``"unknown"`` for None."""
    if nbytes is None:
        return "unknown"
    value, unit = float(nbytes), 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    if unit == 0:
        return f"{value:.0f} bytes"
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f} {_UNITS[unit]}"


def parse_bytes(text: str) -> int:
    """The number of bytes in a text like ``"24GiB"``, ``"512 MiB"``, ``"80G"`` or ``"1000000"``.

    Units are powers of 1024, as everywhere in PyTorch's allocator, ``GB`` too; ``iB`` and ``B`` may be left out.

    Raises:
        ValueError: The text is not a positive size, or so few bytes that a unit must have been forgotten.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size; write it like 24GiB, 512MiB or 80G")
    power = " kmgtp".index(match[2].lower() or " ")
    nbytes = int(float(match[1]) * 1024**power)
    if nbytes <= 0:
        raise ValueError(f"a size must be greater than zero, got {text!r}")
    if not (match[2] or match[3]) and nbytes < _LEAST_BARE:
        raise ValueError(f"the size {text!r} has no unit and would be {nbytes} bytes; write it like {text.strip()}GiB")
    return nbytes

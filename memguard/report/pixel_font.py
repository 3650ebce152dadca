"""Letters of five by eight pixels, so that an image can be written without a library for images."""

from __future__ import annotations

from collections.abc import Iterator

WIDTH, HEIGHT = 5, 8
"""Pixels of a letter."""

_COLUMNS = {
    " ": "0000000000",
    ".": "0060600000",
    ",": "0080700000",
    ":": "0066660000",
    "%": "2313086462",
    "0": "3e5149453e",
    "1": "00427f4000",
    "2": "7249494946",
    "3": "2141494d33",
    "4": "1814127f10",
    "5": "2745454539",
    "6": "3c4a494931",
    "7": "4121110907",
    "8": "3649494936",
    "9": "464949291e",
    "G": "3e41415173",
    "K": "7f08142241",
    "M": "7f021c027f",
    "T": "03017f0103",
    "B": "7f49494936",
    "a": "2054547840",
    "b": "7f28444438",
    "c": "3844444428",
    "d": "384444287f",
    "e": "3854545418",
    "f": "00087e0902",
    "g": "18a4a49c78",
    "h": "7f08040478",
    "i": "00447d4000",
    "j": "2040403d00",
    "k": "7f10284400",
    "l": "00417f4000",
    "m": "7c04780478",
    "n": "7c08040478",
    "o": "3844444438",
    "p": "fc18242418",
    "q": "18242418fc",
    "r": "7c08040408",
    "s": "4854545424",
    "t": "04043f4424",
    "u": "3c4040207c",
    "v": "1c2040201c",
    "w": "3c4030403c",
    "x": "4428102844",
    "y": "4c9090907c",
    "z": "4464544c44",
}
"""Five columns of each letter from the left; the lowest bit is the highest pixel."""


def pixels(text: str) -> Iterator[tuple[int, int]]:
    """The pixels of a text as (x, y) from its upper left corner; a letter that is not known is a space."""
    for number, letter in enumerate(text):
        for x, column in enumerate(bytes.fromhex(_COLUMNS.get(letter, _COLUMNS[" "]))):
            for y in range(HEIGHT):
                if column >> y & 1:
                    yield number * (WIDTH + 1) + x, y

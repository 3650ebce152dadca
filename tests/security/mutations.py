"""What a stranger may have done to a file: bytes turned, JSON values replaced by hostile ones, structure bent."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from memguard.recording.format import COLUMNS, HEADER_BYTES, MAGIC

MARKUP = "</script><img src=x onerror=alert(1)>"
ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\x00\r\b\u202e\ud800"
HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**400, 1e308, -1e308, float("nan"), float("inf"), 1e-320,
    "", "train", "finding", "../../../etc/passwd", "/dev/zero", MARKUP, ESCAPES, "x" * 5_000, "\n" * 50, "%s%n{0}",
    "1", "NaN", "__class__", [], {}, [[]], [None, 1, "x"], [["input", [1, 2], "torch.float32"]], {"": {"": []}},
    {"seconds": "x", "share": []}, {"kind": "oom"}, [["x"] * 300],
)  # fmt: skip
_WORDS = (b"\xff" * 8, b"\x00" * 7 + b"\x80", b"\x00" * 6 + b"\xf0\x7f")
"""Minus one, the smallest number (or None), infinity."""
_RAW = (b"\xff\xfe", b"\x00", b"NaN", b"Infinity", b"-", b'"', b"[" * 3_000, b'{"a":' * 3_000, b"\n", b"\xed\xa0\x80")


def bend_bytes(chance: random.Random, data: bytes, most: int = 4) -> bytes:
    """Some bytes replaced, cut out, doubled, or hostile ones put in."""
    bent = bytearray(data)
    for _ in range(chance.randint(1, most)):
        at = chance.randrange(len(bent)) if bent else 0
        match chance.randrange(5):
            case 0 if bent:
                bent[at] = chance.randrange(256)
            case 1:
                del bent[at : at + chance.randint(1, 40)]
            case 2:
                bent[at:at] = bent[at : at + chance.randint(1, 200)]
            case 3:
                bent[at:at] = chance.choice(_RAW)
            case _:
                del bent[chance.randrange(len(bent)) if bent else 0 :]
    return bytes(bent)


def bend_value(chance: random.Random, value: Any, most: int = 3) -> Any:
    """A copy of a JSON value in which a few places hold something else."""
    value = copy.deepcopy(value)
    for _ in range(chance.randint(1, most)):
        place = value
        while True:
            inside = list(place.items()) if isinstance(place, dict) else list(enumerate(place))
            if not inside:
                break
            key, item = chance.choice(inside)
            if isinstance(item, (dict, list)) and item and chance.random() < 0.7:
                place = item
                continue
            if chance.random() < 0.15:
                del place[key]
            else:
                place[key] = copy.deepcopy(chance.choice(HOSTILE))
            break
    return value


def bend_lines(chance: random.Random, lines: list[dict[str, Any]]) -> bytes:
    """JSON lines of which a few are bent, one way or the other."""
    lines = list(lines)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(lines))
        lines[at] = bend_value(chance, lines[at])
    if chance.random() < 0.1:
        chance.shuffle(lines)
    data = b"\n".join(json.dumps(line).encode() for line in lines) + b"\n"
    return bend_bytes(chance, data, 2) if chance.random() < 0.2 else data


def bend_recording(chance: random.Random, data: bytes) -> bytes:
    """A .bin file with a bent header, bent records, or both."""
    header, rows = data[:HEADER_BYTES], bytearray(data[HEADER_BYTES:])
    kind = chance.random()
    if kind < 0.4:
        told = json.loads(header[len(MAGIC) :])
        if chance.random() < 0.5:
            chance.shuffle(told["columns"])
            told["columns"] = told["columns"][: chance.randint(0, len(COLUMNS))]
        else:
            told = bend_value(chance, told)
        text = MAGIC + json.dumps(told).encode()
        header = (text + b" " * (HEADER_BYTES - 1 - len(text)) + b"\n")[
            : HEADER_BYTES + chance.choice((0, 0, 0, -9, 7))
        ]
    elif kind < 0.5:
        header = bend_bytes(chance, header)
    if kind > 0.3 and rows:
        for _ in range(chance.choice((1, 10, 100))):
            at = 8 * chance.randrange(len(rows) // 8)
            rows[at : at + 8] = chance.choice((*_WORDS, chance.randbytes(8)))
    if chance.random() < 0.1:
        rows = rows[: chance.randrange(len(rows) + 1)]
    return header + bytes(rows)

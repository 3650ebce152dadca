"""JSON lines of a recording, checked: each known value has its known type, whoever wrote the file.

A recording may come from a stranger. What memguard would never write is left out here, once, so that no reader has to
expect a list where a number belongs.
"""

from __future__ import annotations

import json
import math
from typing import Any

MOST_LINE_BYTES = 1 << 20
"""A longer line counts as broken; memguard's longest are post-mortems of some ten thousand bytes."""
MOST_FILE_BYTES = 64 << 20
"""Nothing is read beyond; memguard writes as much in some ten million batches."""
_LONGEST_TEXT = 20_000
_LONGEST_NAME = 200
_DEEPEST = 12
_MOST_VALUES = 20_000
"""Numbers and texts in one line."""

_BY_NAME: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("rank", "world_size", "batch", "batches", "epoch", "index", "line", "count", "pid", "id"), (int,)),
    **dict.fromkeys(("local_rank", "restart", "lane", "bytes", "final_findings", "since"), (int,)),
    "node": (str,),
    **dict.fromkeys(("time", "seconds", "share", "bytes_per_batch", "start_up_seconds"), (int, float)),
    **dict.fromkeys(("kind", "code", "name", "severity", "function", "holder", "stage", "reason", "cause"), (str,)),
    **dict.fromkeys(("text", "device", "device_name", "host", "message", "run", "torch", "python", "file"), (str,)),
    **dict.fromkeys(("phase", "snapshot", "script", "integration", "precision", "memguard", "cause_kind"), (str,)),
    **dict.fromkeys(("shapes", "modules", "lines", "tensors", "input_shapes", "replay", "findings"), (list,)),
    **dict.fromkeys(("caught", "measures_peaks", "misses_training"), (bool,)),
}
"""Names mean the same wherever they stand, but for these:"""
_BY_KIND: dict[str, dict[str, tuple[type, ...]]] = {
    "finding": {"advice": (str,)},
    "code": {"first": (int,)},
    "contents": {"rows": (list,), "moments": (list,)},
    "oom": {"advice": (list,), "owners": (dict,), "site": (dict,), "place": (dict,), "request": (dict,), "id": (str,)},
    "phase": {"times": (int,), "failed": (int,), "ranges": (list,)},
    "end": {"overhead": (dict,), "notes": (list,)},
}


def parse_line(text: bytes) -> dict[str, Any] | None:
    """One line as an object with a kind; values of a wrong type are left out. None if it is broken."""
    if len(text) > MOST_LINE_BYTES:
        return None
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
        return None
    return _checked(_plain(line, 0, [_MOST_VALUES]), _BY_KIND.get(line["kind"], {}))


def plain(value: Any) -> Any:
    """A value that any JSON reader takes: finite, of bounded length, depth and number."""
    return _plain(value, 0, [_MOST_VALUES])


def _plain(value: Any, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        short = value if len(value) <= _LONGEST_TEXT else value[:_LONGEST_TEXT] + " ..."
        return short if short.isascii() else short.encode(errors="replace").decode()  # no half of a surrogate pair
    if isinstance(value, int) and abs(value) > 2**63:
        return None
    if isinstance(value, (dict, list)) and (depth > _DEEPEST or left[0] < 0):
        return None
    if isinstance(value, dict):
        return {
            _plain(str(key)[:_LONGEST_NAME], depth, left): _plain(item, depth + 1, left) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_plain(item, depth + 1, left) for item in value[: max(left[0], 0)]]
    return value


def _checked(values: dict[str, Any], own: dict[str, tuple[type, ...]]) -> dict[str, Any]:
    """The values without those that memguard would not have written under their names."""
    kept: dict[str, Any] = {}
    for name, value in values.items():
        kinds = own.get(name) or _BY_NAME.get(name) or ((int,) if name.endswith("_bytes") else None)
        if value is not None and kinds is not None and not _is_of(value, kinds):
            continue
        if isinstance(value, dict):
            sizes = name == "owners"  # bytes by owner, whatever the owners are called
            value = {key: size for key, size in value.items() if _is_of(size, (int,))} if sizes else _checked(value, {})
        kept[name] = value
    return kept


def _is_of(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds)

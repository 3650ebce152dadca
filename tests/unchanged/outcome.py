"""What one run of a program left: its exit code, its output, its files and its weights; and how two runs differ."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_OF_ONE_RUN = re.compile(rb"\d+(\.\d+)?(?= ?(ms|s|sec|seconds)\b)|(?<=/tmp)\w{8}\b")
"""Durations, and names of temporary files: two plain runs may differ in them, or not."""
_NUMBERS = re.compile(rb"\d+(\.\d+)?(e[-+]?\d+)?")


@dataclass(frozen=True)
class Outcome:
    """One run of a program."""

    exit_code: int
    """As the parent of the process has it: negative for a signal."""
    stdout: bytes
    traceback: bytes
    """From the last "Traceback" of standard error on, without what memguard says."""
    files: dict[str, bytes]
    """All that it wrote below its folder, by path."""
    weights: dict[str, str]
    """Of each optimizer that stepped a digest of the weights after every step, of each process of the program."""

    @classmethod
    def of_folder(cls, exit_code: int, folder: Path) -> Outcome:
        """Reads what a run left in a folder with `work`, `weights`, `stdout` and `stderr`."""
        files = [path for path in sorted((folder / "work").rglob("*")) if path.is_file()]
        return cls(
            exit_code=exit_code,
            stdout=(folder / "stdout").read_bytes(),
            traceback=_last_traceback((folder / "stderr").read_bytes()),
            files={str(path.relative_to(folder / "work")): path.read_bytes() for path in files},
            weights={
                str(n): path.read_text() for n, path in enumerate(sorted((folder / "weights").iterdir(), key=_text_of))
            },
        )


def differences(plain: Outcome, guarded: Outcome, again: Outcome | None = None) -> list[str]:
    """In what a guarded run differs from a plain one, in words.

    Args:
        plain: A run without memguard.
        guarded: One with it.
        again: A second run without memguard. In what the two plain runs differ (times, temporary names) only the form
            is compared: numbers of names and of lines count as equal, and such files by their length.
    """
    again = again or plain
    found = [
        f"{name}: {of(plain)!r:.400} became {of(guarded)!r:.400}"
        for name, of in (("exit code", _exit_code), ("weights", _weights), ("traceback", _traceback))
        if of(plain) == of(again) != of(guarded)
    ]
    found += _lines_that_differ(plain.stdout, guarded.stdout, again.stdout)
    form = sorted if plain.files.keys() == again.files.keys() else _form_of
    names = [form(run.files) for run in (plain, guarded)]
    if names[0] != names[1]:
        found.append(f"files: {names[0]} became {names[1]}")
    for name in sorted(plain.files.keys() & guarded.files.keys()):
        before, after, once_more = plain.files[name], guarded.files[name], again.files.get(name, b"")
        if before == once_more != after:
            found.append(f"{name}: {len(before)} bytes became {len(after)}, from byte {_first(before, after)} on")
        elif len(before) == len(once_more) != len(after):
            found.append(f"{name}: {len(before)} bytes became {len(after)}, though its length never changes")
    return found


def _exit_code(run: Outcome) -> object:
    return run.exit_code


def _weights(run: Outcome) -> object:
    return run.weights


def _traceback(run: Outcome) -> object:
    return run.traceback


def _lines_that_differ(before: bytes, after: bytes, again: bytes) -> list[str]:
    before, after, again = (_OF_ONE_RUN.sub(b"#", text) for text in (before, after, again))
    lines = [text.splitlines() for text in (before, after, again)]
    if before == again:
        masked = lines[:2]
    else:
        masked = [[_NUMBERS.sub(b"#", line) for line in text] for text in lines[:2]]
    if masked[0] == masked[1]:
        return []
    number = next((n for n, pair in enumerate(zip(*masked, strict=False)) if pair[0] != pair[1]), min(map(len, masked)))
    shown = [text[number] if number < len(text) else b"nothing" for text in masked]
    return [f"stdout, line {number + 1}: {shown[0]!r:.300} became {shown[1]!r:.300}"]


def _form_of(files: Iterable[str]) -> list[str]:
    return sorted(_NUMBERS.sub(b"#", name.encode()).decode() for name in files)


def _first(before: bytes, after: bytes) -> int:
    pairs = enumerate(zip(before, after, strict=False))
    return next((number for number, (one, other) in pairs if one != other), min(len(before), len(after)))


def _last_traceback(stderr: bytes) -> bytes:
    at = stderr.rfind(b"Traceback (most recent call last)")
    if at < 0:
        return b""
    lines = stderr[at:].splitlines()
    end = next((n for n, line in enumerate(lines[1:], 1) if line and not line.startswith(b" ")), len(lines))
    return b"\n".join(lines[: end + 1])


def _text_of(path: Path) -> str:
    return path.read_text()

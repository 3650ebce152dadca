"""Runs a program until its memory runs out, changes it as the first advice says, and runs it again."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from memguard.backends.virtual import VirtualBackend
from memguard.integrations.script import run_script
from memguard.text.units import parse_bytes
from tests.advice.changes import NO_CHANGE, applied

HERE = Path(__file__).parent
_DEVICES = re.compile(r"^# device: (\S+)$", re.MULTILINE)
_OUT_OF_MEMORY = re.compile(r"^# runs out of memory$", re.MULTILINE)
_CAUSES = re.compile(r"^# cause: (\S+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Score:
    """What came of one program."""

    name: str
    cause: str | None
    """As the report names it; None where it did not run out of memory."""
    wanted: str | None
    kind: str
    text: str
    replayed: bool
    fits: bool
    why: str = ""
    """Why there was no second run."""

    @property
    def names_cause(self) -> bool:
        """Whether the report says what its author would."""
        return self.wanted is None or self.cause in self.wanted.split("|")


def programs() -> list[Path]:
    """Those of this folder."""
    return sorted((HERE / "corpus").glob("*.py"))


def of_the_corpus() -> list[Path]:
    """Those of the corpus that end so on a virtual device."""
    found = sorted(HERE.parent.glob("corpus/*/*.py"))
    return [path for path in found if _OUT_OF_MEMORY.search(text := path.read_text()) and _DEVICES.search(text)]


def device_of(text: str) -> str:
    """The virtual device that a program names."""
    return _DEVICES.findall(text)[0]


def score(path: Path, folder: Path) -> Score:
    """Runs a program as it is, and as advised.

    Args:
        path: The program.
        folder: For recordings and the changed program.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = path.read_text()
    wanted = _CAUSES.findall(text)
    told = told_of(path, folder / "as it is")
    if told is None:
        return Score(name=path.stem, cause=None, wanted=None, kind="-", text="", replayed=False, fits=False)
    first = told["advice"][0] if told["advice"] else {"kind": "none", "text": "", "replayed": False}
    if first["kind"] == "history":
        again = told_of(path, folder / "with history", history="always")
        first = again["advice"][0] if again is not None and again["advice"] else first
    changed = applied(text, first)
    why = NO_CHANGE.get(first["kind"], "") if changed is None else ""
    fits = False
    if changed is not None:
        other = folder / path.name
        other.write_text(changed)
        conf = "expandable_segments:True" if first["kind"] == "expandable" else ""
        fits = in_child(lambda: _play(other, device_of(text), conf), folder / "as advised") == 0
    return Score(
        name=path.stem,
        cause=told["cause_kind"],
        wanted=wanted[0] if wanted else None,
        kind=first["kind"],
        text=first["text"],
        replayed=first["replayed"],
        fits=fits,
        why=why,
    )


def told_of(path: Path, folder: Path, **options: Any) -> dict[str, Any] | None:
    """The report of the error that ends a program; None where none does."""
    device = device_of(path.read_text())

    def run() -> int:
        chosen = {"device": device, "logdir": str(folder), "validation": "warn", **options}
        return run_script(str(path), [], chosen, module=False)[0]

    in_child(run, folder)
    reports = sorted(folder.glob("memguard/oom-*/report.json"), key=lambda each: each.stat().st_mtime)
    return json.loads(reports[-1].read_text()) if reports else None


def fits(text: str, device: str, folder: Path) -> bool:
    """Whether a program's text runs on a virtual device to its end."""
    path = folder / "program.py"
    path.write_text(text)
    return in_child(lambda: _play(path, device, ""), folder) == 0


def in_child(run: Callable[[], int], folder: Path) -> int:
    """Runs a function in a forked process, which has loaded torch already; its output goes into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 70
    with contextlib.suppress(BaseException):
        output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        try:
            code = run()
        except BaseException:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _play(path: Path, device: str, conf: str) -> int:
    """The program alone on a virtual device, with nothing that watches it."""
    VirtualBackend(parse_bytes(device.removeprefix("virtual:")), conf=conf).install()
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules["__main__"], sys.argv = module, [str(path)]
    exec(compile(path.read_text(), str(path), "exec"), vars(module))
    return 0


def table(scores: list[Score]) -> str:
    """All of it, a line each, with the shares."""
    lines = [f"{'program':34} {'cause':18} {'first advice':13} {'replayed':9} then"]
    for each in scores:
        then = "fits" if each.fits else f"no change: {each.why}" if each.why else "FAILS"
        cause = each.cause or "ran through"
        cause += "" if each.names_cause else f" (not {each.wanted})"
        lines.append(f"{each.name:34} {cause:18} {each.kind:13} {'yes' if each.replayed else '-':9} {then}")
    judged = [each for each in scores if not each.why]
    fitting = sum(each.fits for each in judged)
    named = sum(each.names_cause for each in scores)
    lines.append(f"first advice fits: {fitting} of {len(judged)}; cause named: {named} of {len(scores)}")
    return "\n".join(lines)

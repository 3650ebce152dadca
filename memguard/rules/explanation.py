"""A rule explained at length, with its example, and the acts of memguard's own that have a code."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import final


def setup() -> str:
    """What all examples begin with: imports, a model, an optimizer, a loader."""
    return _read()[0]


def differences(codes: Iterable[str]) -> dict[str, str]:
    """The examples of some rules as differences, by code; memguard's own acts and unknown codes have none."""
    known = _read()[1]
    return {code: known[code] for code in codes if code in known}


@functools.lru_cache(maxsize=1)
def _read() -> tuple[str, dict[str, str]]:
    text = Path(__file__).with_name("examples.md").read_text(encoding="utf-8")
    setup = re.search(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert setup is not None
    return setup[1], dict(re.findall(r"^## (MG\d+)\n\n```diff\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One rule at length."""

    code: str
    name: str
    title: str
    parts: dict[str, str]
    """What, Why it matters, How to fix (of an act of memguard's own: how to switch it off); each one paragraph."""

    example: str = ""
    """A program as a difference, lines with ``-`` before and ``+`` after; empty for an act of memguard's own."""

    def text(self) -> str:
        """As plain text."""
        head = f"{self.code} {self.name}\n{self.title}"
        example = ["Example (model, optimizer, criterion and loader are ordinary ones):", self.example.rstrip()]
        parts = [f"{part}: {text}" for part, text in self.parts.items()]
        return "\n\n".join([head, *parts, *(example if self.example else [])])

    def markdown(self) -> str:
        """As a section of the docs page."""
        parts = "\n\n".join(f"**{part}.** {text}" for part, text in self.parts.items())
        example = f"\n**Example.**\n\n```diff\n{self.example}```\n" if self.example else ""
        return f"## {self.code} {self.name}\n\n{self.title}\n\n{parts}\n{example}"


_AGAINST = "How to switch it off"

ACTS: tuple[Explanation, ...] = (
    Explanation(
        code="MG001",
        name="validation-guarded",
        title="memguard's own act: a forward in eval mode ran without an autograd graph, because no backward uses it.",
        parts={
            _AGAINST: 'Put the forward under `with memguard.allow("grad"):` if gradients are wanted there, or pass '
            '`validation="warn"`.'
        },
    ),
    Explanation(
        code="MG002",
        name="cache-emptied",
        title="memguard's own act: cached memory went back to the driver, as the option `empty_cache` asks.",
        parts={_AGAINST: 'Leave the option out; the default is `empty_cache="never"`.'},
    ),
)

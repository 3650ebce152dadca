"""A rule explained at length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


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

"""Which rules a run judges by: chosen by code or name, checked when they are given."""

from __future__ import annotations

from collections.abc import Iterable

from memguard.detectors.interface import Detector


def choose(
    detectors: tuple[type[Detector], ...], rules: Iterable[str] | None = None, ignore: Iterable[str] = ()
) -> tuple[type[Detector], ...]:
    """The rules selected and not ignored, in the order of their codes.

    Args:
        detectors: All rules.
        rules: Codes or names to select; None selects all. A prefix like ``"MG3"`` selects its family.
        ignore: Codes, names or prefixes to leave out.

    Raises:
        ValueError: A rule of that code or name does not exist; the text names the valid ones.
    """
    chosen = set(detectors) if rules is None else {kind for text in rules for kind in find(detectors, text)}
    left_out = {kind for text in ignore for kind in find(detectors, text)}
    return tuple(kind for kind in detectors if kind in chosen and kind not in left_out)


def find(detectors: tuple[type[Detector], ...], text: str) -> list[type[Detector]]:
    """The rules that a code, a name or a code's prefix means.

    Raises:
        ValueError: There is none.
    """
    wanted = text.strip()
    found = [kind for kind in detectors if wanted.upper() == kind.code or wanted.lower() == kind.name]
    if not found and len(wanted) > 2 and wanted.upper().startswith("MG"):
        found = [kind for kind in detectors if kind.code.startswith(wanted.upper())]
    if not found and is_act(wanted):
        return []
    if not found:
        valid = ", ".join(f"{kind.code} {kind.name}" for kind in detectors)
        raise ValueError(f"there is no rule {text!r}; the rules are {valid}")
    return found


ACTS = {"MG001": "validation-guarded", "MG002": "cache-emptied", "MG003": "part-off"}
"""Memguard's own acts: told like findings, made without a detector."""


def is_act(text: str) -> bool:
    """Whether a code or name is one of memguard's own acts."""
    return text.upper() in ACTS or text.lower() in ACTS.values()

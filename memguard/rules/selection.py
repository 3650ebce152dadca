"""Selects the rules of a run by code or name, and checks the selection."""

from __future__ import annotations

from collections.abc import Iterable

from memguard.options import did_you_mean
from memguard.rules.explanation import ACTS, Explanation
from memguard.rules.interface import Rule


def choose(
    detectors: tuple[type[Rule], ...], rules: Iterable[str] | None = None, ignore: Iterable[str] = ()
) -> tuple[type[Rule], ...]:
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


def find(detectors: tuple[type[Rule], ...], text: str) -> list[type[Rule]]:
    """The rules that a code, a name or a code's prefix means; none where it means an act of memguard's own.

    Raises:
        ValueError: There is neither a rule nor an act of that code or name; the text names the valid ones.
    """
    wanted = text.strip()
    if find_act(wanted) is not None:
        return []
    found = [kind for kind in detectors if wanted.upper() == kind.code or wanted.lower() == kind.name]
    if not found and len(wanted) > 2 and wanted.upper().startswith("MG"):
        found = [kind for kind in detectors if kind.code.startswith(wanted.upper())]
    if not found:
        acts, rules = [(act.code, act.name) for act in ACTS], [(kind.code, kind.name) for kind in detectors]
        valid = ", ".join(f"{code} {name}" for code, name in acts + rules)
        near = did_you_mean(wanted.lower(), [name for _, name in acts + rules])  # codes are all near each other
        raise ValueError(f"there is no rule {text!r}{near}; the rules are {valid}")
    return found


def find_act(text: str) -> Explanation | None:
    """The act of memguard's own that a code or name means."""
    wanted = text.strip()
    return next((act for act in ACTS if wanted.upper() == act.code or wanted.lower() == act.name), None)


def codes_of(detectors: tuple[type[Rule], ...], texts: Iterable[str]) -> frozenset[str]:
    """The codes that codes, names or codes' prefixes mean, of rules and of memguard's own acts.

    Raises:
        ValueError: As `find`.
    """
    codes = {kind.code for text in texts for kind in find(detectors, text)}
    return frozenset(codes.union(act.code for text in texts if (act := find_act(text)) is not None))

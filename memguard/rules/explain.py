"""The docstring of a rule as text, for `memguard explain` and the docs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence

from memguard.rules.explanation import ACTS, Explanation, differences, setup
from memguard.rules.interface import Rule

PARTS = ("What", "Why it matters", "How to fix")


def explain(rule: type[Rule]) -> Explanation:
    """A rule's docstring, taken apart.

    Raises:
        ValueError: The docstring lacks a part.
    """
    paragraphs = [" ".join(text.split()).replace("``", "`") for text in (inspect.getdoc(rule) or "").split("\n\n")]
    title, parts = paragraphs[0], {}
    current = ""
    for paragraph in paragraphs[1:]:
        begun = next((part for part in PARTS if paragraph.startswith(f"{part}: ")), None)
        if begun is not None:
            current, parts[begun] = begun, paragraph[len(begun) + 2 :]
        elif current:
            parts[current] += " " + paragraph
    missing = [part for part in PARTS if part not in parts]
    if missing:
        raise ValueError(f"the docstring of {rule.__name__} lacks {', '.join(missing)}")
    return Explanation(
        code=rule.code,
        name=rule.name,
        title=title,
        parts={part: parts[part][:1].upper() + parts[part][1:] for part in PARTS},
        example=differences([rule.code])[rule.code],
    )


def explanations(rules: Iterable[type[Rule]]) -> list[Explanation]:
    """Memguard's own acts and these rules at length."""
    return [*ACTS, *map(explain, rules)]


def page(explanations: Sequence[Explanation]) -> str:
    """The docs page of all rules and acts."""
    rows = "\n".join(f"| [{e.code}](#{e.code.lower()}-{e.name}) | {e.name} | {e.title} |" for e in explanations)
    sections = "\n".join(e.markdown() for e in explanations)
    return (
        "# Rules\n\n"
        "What memguard looks for. Choose with `rules=` and `ignore=` (codes or names), or silence one place with "
        '`with memguard.allow("MG201"):`. This page is made from the rules\' docstrings by '
        "`python -m memguard.rules.explain > docs/rules.md`.\n\n"
        "The examples are differences: lines with `-` cause the finding, lines with `+` replace them. Both programs "
        "run in the tests (of MG404 and MG601, which need a GPU, they are compiled only), behind these lines:"
        f"\n\n```python\n{setup()}```\n\n"
        f"| code | name | in short |\n|---|---|---|\n{rows}\n\n{sections}"
    )


if __name__ == "__main__":
    from memguard.rules import ALL_RULES

    print(page(explanations(ALL_RULES)), end="")

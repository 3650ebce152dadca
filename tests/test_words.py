"""Plain English: whatever a user reads is free of turns that read as translated."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import memguard
from memguard.rules import ALL_RULES
from memguard.rules.explain import explanations

ROOT = Path(__file__).parents[1]

BANNED = {
    r"\b(told|tells?|telling)\b": "say reported, recorded, shows, says",
    r"\blook(s|ed|ing)? (closely )?(at|into)\b|\blooked\b|\ba look\b": "say samples, examines, reads, checks",
    r"\b(stands?|stood|standing)\b": "say is, are, or use the exact verb",
    r"\b(lies?|lay|lying)\b": "say is, are",
    r"\blikewise\b": "say also, the same, or repeat the noun",
    r"\bin vain\b": "say unused, or without effect",
    r"\b(no|some|every)body\b": "name who, or use the passive",
    r"\bwhose\b": "split the sentence, or say with",
    r"\bwhat (comes|becomes) of\b": "say the result",
    r"\bthe more so\b": "leave it out",
    r"\bbesides\b": "say also, in addition to, beside",
    r"\bremains? alive\b": "say is kept alive, stays allocated",
    r"\bfor good\b": "say permanently, or never freed",
    r"\bby itself\b": "say alone, or name who does it",
    r"\bat once\b": "say immediately, or at the same time",
    r"\b(is|are|be|not) heard\b|\bhears\b": "say recorded, observes, gets",
}
"""Turns that readers stumbled over, with what to write instead; docs/glossary.md has the words to use."""

PAGES = sorted(
    path
    for pattern in ("*.md", "changelog.d/*.md", "docs/*.md", ".github/**/*.yml", "memguard/report/templates/*.html")
    for path in ROOT.glob(pattern)
)

_SHOWN = re.compile(r"<!-- costs:.*?<!-- end of costs -->|`[^`\n]+`|\{[{%#].*?[}%#]\}", re.DOTALL)
"""Generated tables, checked where they are made, and code: a program's own names are not our words."""


def offences(text: str) -> list[str]:
    """The banned turns in a text, each with its surroundings and what to write instead."""
    own = _SHOWN.sub("``", text)
    return [
        f"...{' '.join(own[max(0, match.start() - 30) : match.end() + 20].split())}... ({instead})"
        for turn, instead in BANNED.items()
        for match in re.finditer(turn, own, re.IGNORECASE)
    ]


def strings(source: str) -> Iterator[tuple[int, str]]:
    """The sentences in a module's code, each with its line: literals with a space, docstrings left out."""
    tree = ast.parse(source)
    loose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in loose
        if is_text and " " in node.value:
            yield node.lineno, node.value


def public_docstrings() -> dict[str, str]:
    """The docstrings of all that is public, by name: of classes also the fields' and the methods'."""
    from memguard import testing

    named = {name: getattr(memguard, name) for name in memguard.__all__ if name != "__version__"}
    named |= {f"testing.{name}": getattr(testing, name) for name in testing.__all__}
    pages = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    named |= {name: pkgutil.resolve_name(name) for name in pages}
    found = {"memguard": memguard.__doc__ or ""}
    for name, thing in named.items():
        found[name] = inspect.getdoc(thing) or ""
        for member in dir(thing) if inspect.isclass(thing) else []:
            if not member.startswith("_") and member in vars(thing):
                found[f"{name}.{member}"] = inspect.getdoc(getattr(thing, member)) or ""
        if inspect.isclass(thing) and thing.__module__.startswith("memguard."):
            for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(thing)))):
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                    found[f"{name}, line {node.lineno}"] = str(node.value.value)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_in_plain_english(page: Path) -> None:
    """None of the banned turns is in it."""
    assert offences(page.read_text()) == []


def test_what_memguard_prints_is_in_plain_english() -> None:
    """None of the banned turns is in a message, an advice, a help text, an error or a report of the package."""
    files = sorted((ROOT / "memguard").rglob("*.py"))
    assert [
        f"{path.relative_to(ROOT)}:{line}: {offence}"
        for path in files
        for line, text in strings(path.read_text())
        for offence in offences(text)
    ] == []


def test_what_the_memory_tab_shows_is_in_plain_english() -> None:
    """None of the banned turns is in a string of the tab's own script or page."""
    static = ROOT / "memguard" / "tensorboard_plugin" / "static"
    files = sorted(static.glob("*.js"))
    assert files
    found = []
    for path in files:
        code = re.sub(r"^\s*(//|\*|/\*).*$", "", path.read_text(), flags=re.MULTILINE)
        for text in re.findall(r"\"[^\"\n]* [^\"\n]*\"|'[^'\n]* [^'\n]*'|`[^`\n]* [^`\n]*`", code):
            found += [f"{path.name}: {offence}" for offence in offences(text.replace("`", '"'))]
    assert found == []


def test_the_rules_at_length_are_in_plain_english() -> None:
    """None of the banned turns is in what `memguard explain` prints."""
    assert {each.code: offences(each.text()) for each in explanations(ALL_RULES) if offences(each.text())} == {}


def test_the_public_docstrings_are_in_plain_english() -> None:
    """None of the banned turns is in what `help(memguard.watch)` and the API reference show."""
    documented = public_docstrings()
    assert len(documented) > 60
    assert {name: offences(text) for name, text in documented.items() if offences(text)} == {}


def test_a_banned_turn_would_be_found() -> None:
    """The checks can fail, also at a line's break; code and docstrings of private functions do not count."""
    assert len(offences("The line is told.\nIt\nstands there, likewise.")) == 3
    assert offences("`x.stand` is a list") == []
    module = 'def f():\n    """It stands."""\n    g("likewise")\n    return f"{x} stands there"\n'
    assert [text for _, text in strings(module)] == [" stands there"]

"""The statement that makes a name grow, by the syntax tree alone; needs no torch."""

from __future__ import annotations

import textwrap
from pathlib import Path

from memguard.rules.finding_text import holder
from memguard.source.model import Sources
from memguard.source.name_query import NameQuery, SearchContext, Statement
from memguard.source.search import find_statement


def line_for(text: str, tmp_path: Path, name: str, *kinds: str, graph: bool = True, **more: object) -> int | None:
    """The line found for a variable of the function `f`, or of an attribute if classes are given."""
    found = statement_for(text, tmp_path, name, *kinds, graph=graph, **more)
    return found.line if found is not None else None


def statement_for(
    text: str, tmp_path: Path, name: str, *kinds: str, graph: bool = True, **more: object
) -> Statement | None:
    """The whole of it."""
    path = tmp_path / "case.py"
    path.write_text(textwrap.dedent(text))
    more.setdefault("keys", (None,) * len(kinds))
    where = {"attribute": True} if "classes" in more else {"file": str(path), "first_line": 2, "function": "f"}
    sought = NameQuery(name, kinds=kinds, **where, **more)  # type: ignore[arg-type]
    return find_statement(sought, [str(path)], Sources(), SearchContext(graph=graph))


def test_further_lines_that_fill_a_name_are_told(tmp_path: Path) -> None:
    """Those of its function that add tensors too: neither numbers, nor what another function adds."""
    text = """
    def f(loss, out):
        kept = []
        kept.append(loss.item())
        kept.append(loss)
        if out is not None:
            kept.append(out)

    def g(loss):
        kept = []
        kept.append(loss)
    """
    found = statement_for(text, tmp_path, "kept", "list", "tensor")
    assert found is not None and (found.line, found.also) == (5, (7,))
    assert holder(found.place("kept")) == "`kept` (case.py:5 in f(), and line 7)"


def test_a_name_is_followed_to_its_values(tmp_path: Path) -> None:
    """A variable that only ever holds a number is as harmless as the number."""
    text = """
    def f(loss):
        kept = []
        value = loss.item()
        kept.append(value)
        kept.append(loss)
    """
    assert line_for(text, tmp_path, "kept", "list", "tensor") == 6


def test_shadowed_names_are_not_confused(tmp_path: Path) -> None:
    """A variable of the same name in another function, or in a nested one that binds it anew, is another variable."""
    text = """
    def f(x):
        kept = []
        def inner(y):
            kept = []
            kept.append(y)
        def outer(y):
            kept.append(y)
        return inner, outer
    def g(x):
        kept = []
        kept.append(x)
    """
    assert line_for(text, tmp_path, "kept", "list", "tensor") == 8


def test_self_of_another_class_is_another_object(tmp_path: Path) -> None:
    """An attribute is looked for in its owner's class, not in a class that uses the same name."""
    text = """
    class A:
        def add(self, x):
            self.kept.append(x)
    class B:
        def add(self, x):
            self.kept.append(x)
    """
    assert line_for(text, tmp_path, "kept", "list", "tensor", classes=("B",)) == 7
    assert line_for(text, tmp_path, "kept", "list", "tensor", classes=("A",)) == 4


def test_a_parameter_that_is_assigned_anew_leaves_the_callers_variable_alone(tmp_path: Path) -> None:
    """What carries the state is the caller's assignment, not the callee's of the same name."""
    text = """
    def f(batches, h):
        for x in batches:
            h, loss = step(h, x)

    def step(h, xs):
        for x in xs:
            out, h = cell(x, h)
        return h, out.sum()
    """
    assert line_for(text, tmp_path, "h", "tensor") == 4


def test_file_that_cannot_be_parsed_is_unsampled_tensors(tmp_path: Path) -> None:
    """A file with a syntax error, or none at all, names nothing and fails nothing."""
    path = tmp_path / "broken.py"
    path.write_text("def f(:\n")
    sought = NameQuery("kept", file=str(path), first_line=1, function="f", kinds=("list", "tensor"))
    assert find_statement(sought, [str(path), str(tmp_path / "missing.py")], Sources(), SearchContext()) is None

"""The statement that makes a name grow, by the syntax tree alone; needs no torch."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from memguard.source.model import Sources
from memguard.source.name_query import NameQuery, SearchContext
from memguard.source.search import find_collecting, find_statement, is_alias


def line_for(text: str, tmp_path: Path, name: str, *kinds: str, graph: bool = True, **more: object) -> int | None:
    """The line found for a variable of the function `f`, or of an attribute if classes are given."""
    path = tmp_path / "case.py"
    path.write_text(textwrap.dedent(text))
    more.setdefault("keys", (None,) * len(kinds))
    where = {"attribute": True} if "classes" in more else {"file": str(path), "first_line": 2, "function": "f"}
    sought = NameQuery(name, kinds=kinds, **where, **more)  # type: ignore[arg-type]
    found = find_statement(sought, [str(path)], Sources(), SearchContext(graph=graph))
    return found.line if found is not None else None


VALUES = {
    "x": True,
    "loss": True,
    "loss * 2": True,
    "[loss]": True,
    "{'loss': loss, 'n': 1}": True,
    "model(x)": True,
    "self.last": True,
    "loss if ok else 0": True,
    "(loss, 1)": True,
    "loss.mean()": True,
    "batch['y']": True,
    "[f(z) for z in zs]": True,
    "loss.item()": False,
    "float(loss)": False,
    "1": False,
    "'text'": False,
    "f'{loss}'": False,
    "[]": False,
    "{}": False,
    "loss.item() / n.item()": False,
    "loss.detach()": False,
    "loss.detach().cpu()": False,
    "loss.detach().clone().mean()": False,
    "loss.data": False,
    "out.argmax(1)": False,
    "out > 0": False,
    "torch.zeros(3)": False,
    "x.shape[0]": False,
    "len(batch)": False,
    "loss.tolist()": False,
    "{'loss': loss.item(), 'n': 1}": False,
    "round(loss.item(), 3)": False,
    "time.time() - start.item()": False,
    "[l.detach() for l in ls]": False,
    "tuple(h.detach() for h in hs)": False,
}


@pytest.mark.parametrize("value", VALUES)
def test_values_that_can_keep_a_graph(value: str, tmp_path: Path) -> None:
    """What certainly keeps no graph is no cause."""
    text = f"""
    def f(model, x, loss, ok, ls, hs, zs, batch, n, out, start, self):
        kept = []
        for _ in x:
            kept.append({value})
    """
    assert (line_for(text, tmp_path, "kept", "list", "tensor") is not None) is VALUES[value]


def test_detached_values_keep_storages(tmp_path: Path) -> None:
    """A detached tensor keeps its memory, a number does not."""
    text = """
    def f(loss, out):
        kept = []
        kept.append(loss.item())
        kept.append(out.detach())
    """
    assert line_for(text, tmp_path, "kept", "list", "tensor", graph=False) == 5


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


def test_a_sum_of_numbers_is_not_taken_for_the_sum_of_tensors(tmp_path: Path) -> None:
    """Of two sums the one that can carry is told, by name."""
    text = """
    def f(losses):
        total, plain = 0, 0
        for loss in losses:
            plain += loss.item()
            total += loss
    """
    assert line_for(text, tmp_path, "total", "tensor") == 6
    assert line_for(text, tmp_path, "plain", "tensor") is None


def test_container_kinds_choose_the_method(tmp_path: Path) -> None:
    """`update` fills a dict or a set, `append` a list or a deque."""
    text = """
    def f(x):
        a, b = {}, []
        for i in x:
            a.update({i: i})
            b.append(i)
            a.pop(i)
    """
    assert line_for(text, tmp_path, "a", "dict", "tensor") == 5
    assert line_for(text, tmp_path, "b", "list", "tensor") == 6


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


def test_constant_keys_tell_statements_apart(tmp_path: Path) -> None:
    """`logs["a"]` is not `logs["b"]`."""
    text = """
    def f(x):
        logs = {}
        logs["a"].append(x)
        logs["b"].append(x)
    """
    found = line_for(text, tmp_path, "logs", "dict", "list", "tensor", keys=("b", None, None), grows=1)
    assert found == 5


def test_preparing_methods_are_the_last_resort(tmp_path: Path) -> None:
    """`__init__` and `reset` set what other methods make grow."""
    text = """
    class A:
        def __init__(self, x):
            self.total = x
        def reset(self, x):
            self.total = x * 0
        def add(self, x):
            self.total = self.total + x
    """
    assert line_for(text, tmp_path, "total", "tensor", classes=("A",)) == 8


def test_carried_state_is_the_assignment_that_closes_the_loop(tmp_path: Path) -> None:
    """`h` is carried where it gets what was made from itself, also through other names."""
    text = """
    def f(cell, xs, h):
        for x in xs:
            out = cell(x, h)
            logits = out * 2
            h = out
        return logits
    """
    assert line_for(text, tmp_path, "h", "tensor") == 6


def test_running_comprehension_is_named(tmp_path: Path) -> None:
    """A comprehension that is being evaluated has no name for what it collected."""
    path = tmp_path / "case.py"
    path.write_text("def f(xs):\n    a = [x.item() for x in xs]\n    b = [g(\n        x) for x in xs]\n")
    found = find_collecting([(str(path), 4, "<listcomp>")], Sources())
    assert found is not None and (found.line, found.source) == (3, "b = [g( x) for x in xs]")
    assert find_collecting([(str(path), 2, "<listcomp>")], Sources()) is None


def test_a_comprehension_among_the_arguments_of_a_running_call_is_over(tmp_path: Path) -> None:
    """`step([draw() for ...])`: while `step` runs, nothing is being collected; while `draw` runs, it is."""
    path = tmp_path / "case.py"
    path.write_text("for i in range(9):\n    value = meta.step([draw(i) for _ in range(3)])\n")
    assert find_collecting([(str(path), 2, "step")], Sources()) is None
    assert find_collecting([(str(path), 2, "draw")], Sources()) is not None


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


def test_alias_is_told_from_owner(tmp_path: Path) -> None:
    """A variable that only stands for an attribute, or a loop's variable, is an alias."""
    path = tmp_path / "case.py"
    path.write_text(
        "def f(self, lists):\n    log = self.log\n    own = []\n    for item in lists:\n        item.append(1)\n"
    )

    def alias(name: str) -> bool:
        return is_alias(NameQuery(name, file=str(path), first_line=1, function="f"), Sources())

    assert [alias("log"), alias("own"), alias("item")] == [True, False, True]


def test_file_that_cannot_be_parsed_is_unsampled_tensors(tmp_path: Path) -> None:
    """A file with a syntax error, or none at all, names nothing and fails nothing."""
    path = tmp_path / "broken.py"
    path.write_text("def f(:\n")
    sought = NameQuery("kept", file=str(path), first_line=1, function="f", kinds=("list", "tensor"))
    assert find_statement(sought, [str(path), str(tmp_path / "missing.py")], Sources(), SearchContext()) is None


def test_a_call_on_a_collection_of_metrics_fills_their_lists(tmp_path: Path) -> None:
    """``metrics.update(x)`` may reach the list inside one of its parts; the constructor is only an assignment."""
    text = """
    def f(loader):
        metrics = Collection({"auroc": Auroc(), "ap": Ap()})
        for x in loader:
            metrics.update(model(x))
    """
    kinds = ("object", "object", "list", "tensor")
    assert line_for(text, tmp_path, "metrics", *kinds, graph=False, keys=(None,) * 3, grows=2) == 5


def test_a_generator_beside_what_runs_on_its_line_collects_nothing(tmp_path: Path) -> None:
    """It has a frame of its own while it is evaluated."""
    path = tmp_path / "train.py"
    path.write_text(
        "def main(x, hidden):\n    y, hidden = model(x, hidden); kept = tuple(part * 2 for part in hidden)\n"
    )
    assert find_collecting([(str(path), 2, None)], Sources(), graph=False) is None
    assert find_collecting([(str(path), 2, "<genexpr>")], Sources(), graph=False) is not None


@pytest.mark.parametrize(("moved", "line"), [(True, 6), (False, 4)])
def test_a_tuple_is_stored_by_the_statement_that_can_have_made_it(moved: bool, line: int, tmp_path: Path) -> None:
    """Of two that store under a number, a flag beside the tensor rules one out."""
    text = """
    def f(tracker, x, number, small):
        if small:
            tracker[number] = (x, False)
        else:
            tracker[number] = (x.clone(), True)
    """
    assert line_for(text, tmp_path, "tracker", "dict", "tuple", "tensor", graph=False, beside=((1, moved),)) == line

"""Applies an advice to a program's text, as a reader would who does what it says and thinks no further.

Each kind of advice has its change. Where a kind has none, the advice counts as one that does not help, unless
`NO_CHANGE` says why no text could be changed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

Change = Callable[[ast.Module, dict[str, Any]], bool]
NO_CHANGE = {"elsewhere": "what failed is outside the program: it raises CUDA's text itself"}

_HELPERS = """
def _too_long(value, axis, limit):
    import torch as _torch
    if isinstance(value, _torch.Tensor):
        return value.dim() > axis and value.shape[axis] > limit
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(_too_long(each, axis, limit) for each in value)
    return isinstance(value, int) and not isinstance(value, bool) and value > limit
def _keep(into, value):
    into.append(value)
    del into[:-8]
def _keep_last(value, axis):
    return value.narrow(axis, max(value.shape[axis] - 64, 0), min(value.shape[axis], 64)).clone()
def _drop_oldest(cache, most):
    while len(cache) > most:
        cache.pop(next(iter(cache)))
def _drop_groups(optimizer):
    for group in optimizer.param_groups[1:-8]:
        for parameter in group["params"]:
            optimizer.state.pop(parameter, None)
    del optimizer.param_groups[1:-8]
def _keep_one(into, value):
    into.append(value)
    del into[:-1]
def _detached(value):
    import torch as _torch
    if isinstance(value, _torch.Tensor):
        return value.detach()
    if isinstance(value, dict):
        return {key: _detached(each) for key, each in value.items()}
    return type(value)(map(_detached, value)) if type(value) in (list, tuple) else value
"""


def applied(text: str, advice: dict[str, Any]) -> str | None:
    """The program with the change; None where there is none, or nothing in the program that it fits.

    Args:
        text: The program.
        advice: As the report has it.
    """
    tree, change = ast.parse(text), CHANGES.get(advice["kind"])
    if change is None or not change(tree, advice):
        return None
    at = next((i for i, node in enumerate(tree.body) if not _is_head(node)), len(tree.body))
    tree.body[at:at] = ast.parse(_HELPERS).body
    return ast.unparse(ast.fix_missing_locations(tree))


def _is_head(node: ast.stmt) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _statement(tree: ast.AST, line: int | None) -> tuple[list[ast.stmt], int] | None:
    """The innermost statement on a line, as its block and place there."""
    found = [
        (node.end_lineno - node.lineno, block, at)
        for block in _blocks(tree)
        for at, node in enumerate(block)
        if line and node.end_lineno and node.lineno <= line <= node.end_lineno
    ]
    if not found:
        return None
    _, block, at = min(found, key=lambda each: each[0])
    return block, at


def _line(advice: dict[str, Any]) -> int | None:
    line: int | None = advice["place"]["line"]
    return line


def _number(tree: ast.Module, advice: dict[str, Any]) -> bool:
    """The new number replaces the old one: where a name says that it is a batch's, and if none does, everywhere."""
    found = [node for node in ast.walk(tree) if _is_number(node, advice["instead_of"])]
    named = [node for name, node in _named(tree) if "batch" in name.lower() and node in found]
    for node in named or found:
        node.value = advice["value"]
    return bool(found)


def _is_number(node: ast.AST, value: int) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == value


def _named(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Values with the names that they get: in assignments, calls and the defaults of functions and options."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                yield from ((ast.unparse(name), value) for name, value in pairs)
        elif isinstance(node, ast.Call):
            first = ast.unparse(node.args[0]) if node.args else ""
            yield from ((first if each.arg == "default" else each.arg or "", each.value) for each in node.keywords)
        elif isinstance(node, ast.arguments):
            given = [*node.posonlyargs, *node.args]
            yield from ((arg.arg, value) for arg, value in zip(reversed(given), reversed(node.defaults), strict=False))


def _skip_long(tree: ast.Module, advice: dict[str, Any]) -> bool:
    """Longer inputs are dropped, in every loop over them."""
    axis = int(re.findall(r"\(dimension (\d+):", advice["text"])[0])
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For) and not _makes_models(node)]
    for loop in loops:
        targets = [node for node in ast.walk(loop.target) if isinstance(node, ast.Name)]
        names = ", ".join(f"{each.id}" for each in targets)
        loop.body[:0] = ast.parse(f"for _each in [{names}]:\n    pass\n").body[:0]
        test = f"if _too_long([{names}], {axis}, {advice['value']}): continue"
        loop.body[:0] = [_only_statement(test)]
    return bool(loops)


def _only_statement(text: str) -> ast.stmt:
    return ast.parse(f"while True:\n    {text}").body[0].body[0]  # type: ignore[attr-defined,no-any-return]


def _makes_models(loop: ast.For) -> bool:
    """Whether a loop runs over numbers that make something of their own: no loop over inputs."""
    return isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Name) and loop.iter.func.id == "range"


def _without_graph(tree: ast.Module, advice: dict[str, Any]) -> bool:
    """The statement runs under no_grad."""
    found = _statement(tree, _line(advice))
    if found is None:
        return False
    block, at = found
    [guard] = ast.parse("import torch as _torch\nwith _torch.no_grad():\n    pass").body[1:]
    assert isinstance(guard, ast.With)
    guard.body = [block[at]]
    block[at : at + 1] = [*ast.parse("import torch as _torch").body, guard]
    return True


def _detach(tree: ast.Module, advice: dict[str, Any]) -> bool:
    """``x = x.detach()`` after the statement."""
    found, holder = _statement(tree, _line(advice)), advice["place"]["holder"]
    if found is None or not holder:
        return False
    name = _as_written(tree, holder)
    found[0].insert(found[1] + 1, ast.parse(f"{name} = _detached({name})").body[0])
    return True


def _as_written(tree: ast.AST, holder: str) -> str:
    """``Class.attribute`` is ``self.attribute`` in its methods."""
    first, _, rest = holder.partition(".")
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return f"self.{rest}" if first in classes and rest else holder


def _add_number(tree: ast.Module, advice: dict[str, Any]) -> bool:
    """``total += loss`` becomes ``total += loss.item()``."""
    found = _statement(tree, _line(advice))
    node = found[0][found[1]] if found is not None else None
    if isinstance(node, ast.AugAssign):
        node.value = _item(node.value)
        return True
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        node.value.right = _item(node.value.right)
        return True
    return False


def _item(value: ast.expr) -> ast.expr:
    return ast.Call(func=ast.Attribute(value=value, attr="item", ctx=ast.Load()), args=[], keywords=[])


def _additions(tree: ast.Module, holder: str | None) -> list[ast.Call]:
    """Where something is added to a container: by the last part of its name."""
    last = (holder or "").rpartition(".")[2]
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("append", "add", "extend")
        and last in re.split(r"\W+", ast.unparse(node.func.value))
    ]


def _detach_kept(tree: ast.Module, advice: dict[str, Any]) -> bool:
    """What is put into the container is detached; a total is one of numbers."""
    found = _additions(tree, advice["place"]["holder"])
    for call in found:
        call.args = [ast.Call(func=ast.Name("_detached", ast.Load()), args=[each], keywords=[]) for each in call.args]
    return bool(found) or _add_number(tree, advice) or _detach(tree, advice)


def _bounded(tree: ast.Module, advice: dict[str, Any]) -> bool:
    """Only a bounded number is kept: a virtual device has no CPU to move things to."""
    found = [call for call in _additions(tree, advice["place"]["holder"]) if len(call.args) == 1]
    for call in found:
        assert isinstance(call.func, ast.Attribute)
        if "detach()" in advice["text"]:
            call.args = [ast.Call(func=ast.Name("_detached", ast.Load()), args=call.args, keywords=[])]
        kept = ast.unparse(call.func.value)
        name = "_keep_one" if advice["kind"] == "models" else "_keep"
        call.args.insert(0, ast.parse(kept, mode="eval").body)
        call.func = ast.Name(name, ast.Load())
    return bool(found) or _shortened(tree, advice) or _few_keys(tree, advice, most=8)


def _bound(tree: ast.Module, advice: dict[str, Any]) -> bool:
    """A cache of a function has a size; after the statement that adds to something the oldest of it are dropped."""
    line, found = _line(advice), _statement(tree, _line(advice))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and line in range(node.lineno - len(node.decorator_list), node.lineno + 1):
            node.decorator_list = [_sized(each) for each in node.decorator_list]
            return True
    if found is None:
        return False
    block, at = found
    if ".add_param_group(" not in (text := ast.unparse(block[at])):
        return _few_keys(tree, advice, most=64) or _bounded(tree, advice)
    block[at + 1 : at + 1] = ast.parse(f"_drop_groups({text.partition('.add_param_group(')[0]})").body
    return True


def _few_keys(tree: ast.Module, advice: dict[str, Any], *, most: int) -> bool:
    """After the statement that stores under a key, the oldest keys are dropped."""
    found = _statement(tree, _line(advice))
    node = found[0][found[1]] if found is not None else None
    if found is None or not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Subscript):
        return False
    if "detach()" in advice["text"]:
        node.value = ast.Call(func=ast.Name("_detached", ast.Load()), args=[node.value], keywords=[])
    call = f"_drop_oldest({ast.unparse(node.targets[0].value)}, {most})"
    found[0].insert(found[1] + 1, ast.parse(call).body[0])
    return True


def _sized(decorator: ast.expr) -> ast.expr:
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    if ast.unparse(name).rpartition(".")[2] not in ("cache", "lru_cache"):
        return decorator
    return ast.parse("__import__('functools').lru_cache(maxsize=64)", mode="eval").body


def _shortened(tree: ast.Module, advice: dict[str, Any]) -> bool:
    """A tensor that each statement makes longer keeps its last entries."""
    found = _statement(tree, _line(advice))
    node = found[0][found[1]] if found is not None else None
    if found is None or not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    target, value = ast.unparse(node.targets[0]), node.value
    calls = [each for each in ast.walk(value) if isinstance(each, ast.Call) and ast.unparse(each.func) == "torch.cat"]
    if not calls:
        return False
    axes = [*calls[0].args[1:2], *(each.value for each in calls[0].keywords if each.arg == "dim")]
    axis = ast.unparse(axes[0]) if axes else "0"
    found[0].insert(found[1] + 1, ast.parse(f"{target} = _keep_last({target}, {axis})").body[0])
    return True


def _reset(tree: ast.Module, advice: dict[str, Any]) -> bool:
    """``metric.reset()`` after each statement that computes it."""
    name, found = advice["place"]["holder"], False
    for block in list(_blocks(tree)):
        for at, node in reversed(list(enumerate(block))):
            if isinstance(node, (ast.Expr, ast.Assign)) and f"{name}.compute(" in ast.unparse(node):
                block.insert(at + 1, ast.parse(f"{name}.reset()").body[0])
                found = True
    return found


def _retry_outside(tree: ast.Module, advice: dict[str, Any]) -> bool:
    """The handler only sets a flag; what it did comes after it."""
    changed = False
    for block in list(_blocks(tree)):
        for at, node in reversed(list(enumerate(block))):
            if isinstance(node, ast.Try) and len(node.handlers) == 1:
                later = node.handlers[0].body
                node.handlers[0].body = ast.parse("_failed = True").body
                again = ast.parse("if _failed:\n    pass").body[0]
                assert isinstance(again, ast.If)
                again.body = later
                block[at : at + 1] = [*ast.parse("_failed = False").body, node, again]
                changed = True
    return changed


def _optimizer(tree: ast.Module, advice: dict[str, Any]) -> bool:
    """The optimizer that is named is made another way."""
    changed = False
    for node in ast.walk(tree):
        name = node.func if isinstance(node, ast.Call) else None
        if not isinstance(node, ast.Call) or not isinstance(name, (ast.Attribute, ast.Name)):
            continue
        if (name.attr if isinstance(name, ast.Attribute) else name.id) != advice["place"]["holder"]:
            continue
        if advice["kind"] == "fused":
            node.keywords = [each for each in node.keywords if each.arg not in ("foreach", "fused")]
            node.keywords.append(ast.keyword("fused", ast.Constant(True)))
        else:
            node.func = ast.parse("__import__('torch').optim.Adafactor", mode="eval").body
            node.args, node.keywords = node.args[:1], [each for each in node.keywords if each.arg == "params"]
        changed = True
    return changed


CHANGES: dict[str, Change] = {
    "batch": _number,
    "buffer": _number,
    "length": _skip_long,
    "no_grad": _without_graph,
    "detach": _detach,
    "number": _add_number,
    "detach-kept": _detach_kept,
    "cpu": _bounded,
    "models": _bounded,
    "bound": _bound,
    "reset": _reset,
    "exception": _retry_outside,
    "fused": _optimizer,
    "optimizer": _optimizer,
    "expandable": lambda tree, advice: True,
}

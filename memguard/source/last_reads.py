"""What a function's text says of a variable: the statement on a line, what may share its tensor, its last read."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import final

from memguard.source.chains import last_name
from memguard.source.functions import Function
from memguard.source.read_again import is_read_again
from memguard.source.syntax import Source

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_NUMBERS = frozenset(
    {"shape", "size", "numel", "dim", "ndim", "device", "dtype", "item", "tolist", "requires_grad", "is_cuda", "nbytes"}
)
"""Parts of a tensor that keep nothing of it."""
_ONE_TENSOR = frozenset(
    [
        *("bmm", "clone", "exp", "float", "log", "log_softmax", "matmul", "mean", "mm", "norm", "relu", "repeat"),
        *("sigmoid", "softmax", "sqrt", "square", "sum", "tanh", "to"),
    ]
)
"""What a tensor gives back as one other."""
_SHAPED = frozenset({"squeeze", "unsqueeze", "view", "reshape", "flatten", "transpose", "permute", "t"})
_BACKWARDS = frozenset({"backward", "grad", "manual_backward"})


@final
class Body:
    """A function of a parsed file."""

    def __init__(self, source: Source, function: Function) -> None:
        self._source, self._function = source, function
        self._statements = [node for node in _own(function.node) if isinstance(node, ast.stmt)]
        self._statements.sort(key=lambda statement: (statement.lineno, statement.col_offset))

    @property
    def path(self) -> str:
        """Like ``LitModel.training_step``."""
        return self._function.path

    def at(self, line: int) -> ast.stmt | None:
        """The innermost statement on a line; of a loop or a branch, its head."""
        found = None
        for statement in self._statements:
            if statement.lineno <= line <= (statement.end_lineno or line):
                found = statement
        return found

    def text(self, statement: ast.stmt) -> str:
        """The statement as one line."""
        return self._source.text(statement.lineno, statement.end_lineno or statement.lineno)

    def sharing(self, name: str, made: ast.stmt, until: ast.stmt, makes: Callable[[ast.stmt], bool]) -> set[str]:
        """Variables that may hold the same tensor between two statements: the name, parts of it, lists it went into.

        Args:
            name: A variable.
            made: The statement that gave it its value.
            until: The statement that runs.
            makes: Whether a statement made something new that outlived it.
        """
        names = {name}
        for statement in self._statements:
            if not made.lineno < statement.lineno < until.lineno or not _keeps(statement, names):
                continue
            targets = _targets(statement)
            if isinstance(statement, ast.AugAssign) and not _is_list(statement.value, names - {name}):
                continue
            if targets and all(isinstance(target, ast.Name) for target in targets) and makes(statement):
                continue
            roots = {root for target in targets if (root := _root(target)) is not None}
            names |= {root for root in roots if self._function.binds(root) and root != "self"}
        return names

    def is_set_between(self, name: str, made: ast.stmt, until: ast.stmt) -> bool:
        """Whether the variable gets another value, or is deleted, before the statement that runs."""
        return any(
            made.lineno < statement.lineno < until.lineno
            and any(
                isinstance(part, ast.Name) and part.id == name
                for target in (statement.targets if isinstance(statement, ast.Delete) else _targets(statement))
                for part in _flat(target)
            )
            for statement in self._statements
        )

    def needs(self, statement: ast.stmt, names: set[str]) -> bool:
        """Whether a statement reads one of some variables, or runs a backward, which may."""
        return any(
            (isinstance(node, ast.Name) and node.id in names)
            or (isinstance(node, ast.Call) and last_name(node.func) in _BACKWARDS)
            for part in _parts(statement)
            for node in ast.walk(part)
        )

    def goes_back(self, line: int) -> bool:
        """Whether a backward is called on a line or further down."""
        return any(site.line >= line and last_name(site.node.func) in _BACKWARDS for site in self._function.calls)

    def loops(self, line: int, other: int) -> bool:
        """Whether two lines stand in one loop."""
        return any(
            isinstance(node, _LOOPS) and node.lineno <= min(line, other) and max(line, other) <= (node.end_lineno or 0)
            for node in self._statements
        )

    def returned_at(self, name: str) -> int | None:
        """At which place of the tuple that it returns a variable stands; None where that cannot be told."""
        found: set[int] = set()
        for node in self._statements:
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
                parts = list(enumerate(node.value.elts))
                whole = {index for index, part in parts if isinstance(part, ast.Name) and part.id == name}
                found |= whole or {index for index, part in parts if _reads(part, name)}
            elif isinstance(node, ast.Return) and node.value is not None:
                return None
        return found.pop() if len(found) == 1 else None

    def reads_after(self, names: set[str], statement: ast.stmt) -> bool:
        """Whether any of some variables is read after a statement."""
        line = statement.end_lineno or statement.lineno
        if isinstance(statement, (ast.For, ast.AsyncFor, ast.While, ast.If, ast.With, ast.AsyncWith, ast.Try)):
            line = statement.lineno
        first, own = self._function.first_line, self._function.name
        return any(is_read_again(self._source, first, own, name, line) is not False for name in names)


def names_set(statement: ast.stmt) -> list[str] | None:
    """The variables that a statement gives a value to, in their order; None where it sets anything else."""
    targets = _targets(statement)
    if isinstance(statement, (ast.AugAssign, ast.Expr)) or len(targets) != 1:
        return None
    parts = _flat(targets[0])
    return [part.id for part in parts if isinstance(part, ast.Name)] if _all_names(parts) else None


def parts_made(statement: ast.stmt) -> int:
    """How many parts a tuple that is returned has, where the statement computes one tensor for each; else 0.

    As ``return self.head(h), self.value(h).squeeze(-1)`` does: what else is called may give numbers, or several.
    """
    if not isinstance(statement, ast.Return) or not isinstance(statement.value, ast.Tuple):
        return 0
    parts = statement.value.elts
    return len(parts) if all(map(_is_one_tensor, parts)) else 0


def _is_one_tensor(part: ast.expr) -> bool:
    """Whether it is arithmetic, what a tensor gives back, or an answer of the object's own part, in whatever shape."""
    while isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in _SHAPED:
        part = part.func.value
    if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
        is_own = isinstance(part.func.value, ast.Name) and part.func.value.id == "self"
        return is_own or part.func.attr in _ONE_TENSOR
    return isinstance(part, ast.BinOp)


def function_around(source: Source, line: int) -> Function | None:
    """The innermost function around a line; lambdas are no functions here."""
    inside = [
        function
        for function in source.functions
        if isinstance(function.node, _FUNCTIONS) and function.node.lineno <= line <= (function.node.end_lineno or line)
    ]
    return max(inside, key=lambda function: function.first_line, default=None)


def _reads(part: ast.AST, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(part))


def _own(scope: ast.AST | None) -> list[ast.AST]:
    """What stands in a function itself, not in functions and classes inside of it."""
    found: list[ast.AST] = []
    waiting = list(ast.iter_child_nodes(scope)) if scope is not None else []
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, _SCOPES):
            waiting.extend(ast.iter_child_nodes(node))
    return found


def _parts(statement: ast.stmt) -> list[ast.AST]:
    """The expressions of a statement, without the statements inside of it."""
    return [part for part in ast.iter_child_nodes(statement) if not isinstance(part, (ast.stmt, ast.ExceptHandler))]


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return list(statement.targets)
    if isinstance(statement, (ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor)):
        return [statement.target]
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return [item.optional_vars for item in statement.items if item.optional_vars is not None]
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        method = statement.value.func  # kept.append(x)
        return [method.value] if isinstance(method, ast.Attribute) else []
    return []


def _is_list(value: ast.expr, names: set[str]) -> bool:
    """Whether what is added to a variable is a list, of which it keeps the elements; of a tensor it keeps nothing."""
    lists = (ast.List, ast.Tuple, ast.ListComp)
    return isinstance(value, lists) or (isinstance(value, ast.Name) and value.id in names)


def _flat(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return [part for each in target.elts for part in _flat(each)]
    return [target.value if isinstance(target, ast.Starred) else target]


def _all_names(parts: list[ast.expr]) -> bool:
    return bool(parts) and all(isinstance(part, ast.Name) for part in parts)


def _root(target: ast.expr) -> str | None:
    while isinstance(target, (ast.Attribute, ast.Subscript, ast.Call)):
        target = target.func if isinstance(target, ast.Call) else target.value
    return target.id if isinstance(target, ast.Name) else None


def _keeps(statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement reads one of some variables for more than its shape."""
    waiting: list[ast.AST] = _parts(statement)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Attribute) and node.attr in _NUMBERS:
            continue
        if isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load):
            return True
        waiting.extend(ast.iter_child_nodes(node))
    return False

"""Whether the source ever empties what it fills: read from the syntax tree, for a name that grows.

Long because the ways to empty, begin anew and measure something are one list of small questions to the same nodes.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from memguard.source.parsing import parse_file
from memguard.source.targets import parts_of

_SHRINKING = frozenset({"pop", "popleft", "popitem", "clear", "remove", "reset"})
_LOOPS = (ast.For, ast.While, ast.AsyncFor)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def is_bounded(
    file: str | None,
    line: int | None,
    holder: str | None,
    *,
    evaluates: bool = False,
    by_index: bool = True,
    by_key: bool = True,
    by_length: bool = True,
    by_removal: bool = True,
    by_function: bool = True,
    by_scope: bool = True,
) -> bool:
    """Whether something limits a container that grows.

    It is cleared, rebuilt in an outer loop, compared by length, filled while a counter is below something, or has a
    maxlen; or it is a local variable of one pass over the data, which ends with its function, a script's one pass of
    evaluation, or made by a comprehension; or a dataset's cache by index, which has at most one element for each
    sample, or one that is asked for a key before it is filled: how many keys there are, only the run can show.

    Args:
        file: Where it grows.
        line: The statement that adds to it.
        holder: Its name, like ``preds`` or ``Trainer.outputs``.
        evaluates: Whether it grows in evaluation.
        by_index: Whether a cache by index or key counts as limited; not where each worker fills one of its own.
        by_key: Whether one by key does.
        by_length: Whether a comparison of its length counts; not where it is longer already.
        by_removal: Whether it counts that something is taken out; not where that is known never to happen.
        by_function: Whether its function's end counts where that is called once and trains, and lasts like the run.
        by_scope: Whether the end of a function counts at all.

    Returns:
        True also where the source cannot be read: then nothing speaks against it.
    """
    tree = parse_file(file) if file is not None else None
    if tree is None or line is None or not holder:
        return True
    name = holder.partition("[")[0].rpartition(".")[2]
    if name == "_trainer":
        return True  # Lightning's own loop keeps it for its caller: what trainer.predict() returns
    attribute = "." in holder.partition("[")[0]
    nodes = list(ast.walk(tree))
    if any(is_comprehension(node, name, line) or (by_removal and shrinks(node, name, attribute)) for node in nodes):
        return True
    if by_length and (is_counted(tree, line) or any(is_measured(node, name) for node in nodes)):
        return True
    function, loops = around(tree, line)
    if by_index and any(_is_by_index(node, name, line, function) for node in ast.walk(function)):
        return True
    if by_index and by_key and is_asked_first(function, line):
        return True
    if attribute and any(is_set_anew(scope, name) for scope in nodes):
        return True
    if any(begins_anew(node, name) for loop in loops[:-1] for node in loop.body):
        return True
    if attribute or not by_scope or not any(assigns(node, name) for node in ast.walk(function)):
        return False  # an attribute or a global, and nothing ever empties it
    if not by_function and trains(loops) and runs_once(tree, function):
        return False
    return len(loops) <= 1 and (isinstance(function, FUNCTIONS) or (evaluates and not trains(loops)))


def has_limit(file: str | None, holder: str | None) -> bool:
    """Whether a container never holds more than so much: it has a maxlen, or something is taken out of it.

    Args:
        file: Where it is filled.
        holder: Its name, like ``best`` or ``Trainer.best``.
    """
    tree = parse_file(file) if file is not None and holder else None
    if tree is None or not holder:
        return False
    owner, _, name = holder.partition("[")[0].rpartition(".")
    return any(shrinks(node, name, bool(owner)) for node in ast.walk(tree))


def is_made_anew(file: str | None, line: int | None, holder: str | None) -> bool:
    """Whether each turn of the loop around a line first gives a name something that does not come of what it was.

    ``images = batch.to(device)`` and then ``images = interpolate(images, size)``: its size changes, and nothing grows.

    Args:
        file: Where it is set.
        line: A statement that sets it.
        holder: Its name.
    """
    tree = parse_file(file) if file is not None and line is not None and holder else None
    if tree is None or line is None or not holder:
        return False
    name = holder.partition("[")[0].rpartition(".")[2]
    function, loops = around(tree, line)
    turn: ast.AST = loops[-1] if loops else function
    statements = getattr(turn, "body", []) if turn is not tree else []
    return any(begins_anew(statement, name) and statement.lineno < line for statement in statements)


def is_set_anew(scope: ast.AST, name: str, *, apart: Collection[int] = ()) -> bool:
    """Whether a method begins an attribute anew, other than where it is filled for the first time.

    Args:
        scope: The method.
        name: The attribute.
        apart: The ids of statements that do not.
    """
    if not isinstance(scope, FUNCTIONS) or scope.name == "__init__":
        return False
    first = _first_fills(scope, name).union(apart)
    anew = [node for node in ast.walk(scope) if begins_anew(node, name) and id(node) not in first]
    return any(_sets_shared(node, name, scope) for node in anew)


def runs_once(tree: ast.Module, function: ast.AST, *, depth: int = 3) -> bool:
    """Whether a function is called at one place, and neither that place nor what leads to it stands in a loop."""
    if not isinstance(function, FUNCTIONS) or not depth:
        return function is tree
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and last_part(node.func) == function.name]
    if len(calls) != 1:
        return False
    caller, loops = around(tree, calls[0].lineno)
    return not loops and caller is not function and runs_once(tree, caller, depth=depth - 1)


def begins_anew(node: ast.AST, name: str) -> bool:
    """Whether a statement gives a name something else: not ``self.bank = torch.cat([self.bank, z])``."""
    if not assigns(node, name) or not isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
        return False
    return node.value is None or not any(last_part(part) == name for part in ast.walk(node.value))


def _sets_shared(node: ast.AST, name: str, function: ast.AST) -> bool:
    """Whether an assignment goes to an attribute or a global, not to a variable of the same name."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    parts = [part for target in targets if isinstance(target, ast.expr) for part in _parts(target)]
    if any(isinstance(part, ast.Attribute) and part.attr == name for part in parts):
        return True
    return any(isinstance(inner, ast.Global) and name in inner.names for inner in ast.walk(function))


def _first_fills(function: ast.AST, name: str) -> set[int]:
    """Statements that give a name its first value: those under ``if self.bank is None:``."""
    return {
        id(inner)
        for node in ast.walk(function)
        if isinstance(node, ast.If) and _is_unset(node.test, name)
        for statement in node.body
        for inner in ast.walk(statement)
    }


def _is_unset(test: ast.expr, name: str) -> bool:
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is):
        return last_part(test.left) == name and isinstance(test.comparators[0], ast.Constant)
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and last_part(test.operand) == name


def trains(loops: Sequence[ast.AST]) -> bool:
    """Whether a loop trains as well as it evaluates, as one that lets an agent act and learn."""
    calls = (node.func for loop in loops for node in ast.walk(loop) if isinstance(node, ast.Call))
    return any(isinstance(function, ast.Attribute) and function.attr == "backward" for function in calls)


def around(tree: ast.Module, line: int) -> tuple[ast.AST, list[ast.For | ast.While | ast.AsyncFor]]:
    """The innermost function (or the module) around a line, and its loops around it, outermost first."""
    function: ast.AST = tree
    loops: list[ast.For | ast.While | ast.AsyncFor] = []
    for node in ast.walk(tree):  # breadth first: outer before inner
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0) or 0
        if not first <= line <= last:
            continue
        if isinstance(node, FUNCTIONS):
            function, loops = node, []
        elif isinstance(node, _LOOPS):
            loops.append(node)
    return function, loops


def last_part(node: ast.AST) -> str | None:
    """The last name of an expression: of ``self.items[k]`` it is ``items``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return last_part(node.value) if isinstance(node, ast.Subscript) else None


def shrinks(node: ast.AST, name: str, attribute: bool) -> bool:
    """Whether a node takes something out of what a name holds, or limits it.

    Args:
        node: Any part of the source.
        name: The last part of the name.
        attribute: Whether it is an object's. A variable of that name is another one: ``del images`` empties no
            ``self.images``, and ``images = images[:8]`` does not cut it.
    """
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in _SHRINKING and last_part(function.value) == name:
            return True
    if isinstance(node, ast.Delete):
        targets = [target for target in node.targets if not (attribute and isinstance(target, ast.Name))]
        return any(last_part(target) == name for target in targets)
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and assigns(node, name):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        pairs = [pair for target in targets if node.value for pair in parts_of(target, node.value)]
        return any(_limits(value, name, attribute) for target, value in pairs if last_part(target) == name)
    return False


def _limits(value: ast.expr, name: str, attribute: bool) -> bool:
    """Whether a value has a limit of its own: a deque's maxlen, a slice of what was there."""
    if isinstance(value, ast.Call) and any(keyword.arg == "maxlen" for keyword in value.keywords):
        return True
    if isinstance(value, ast.Call) and last_part(value.func) == "deque" and len(value.args) > 1:
        return True  # deque([], 1000)
    if not isinstance(value, ast.Subscript) or (attribute and isinstance(value.value, ast.Name)):
        return False
    return last_part(value.value) == name  # x = x[-k:]


def is_measured(node: ast.AST, name: str) -> bool:
    """Whether the length of a name is compared with something."""
    return isinstance(node, ast.Compare) and any(
        isinstance(side, ast.Call) and last_part(side.func) == "len" and side.args and last_part(side.args[0]) == name
        for side in (node.left, *node.comparators)
    )


def is_counted(tree: ast.Module, line: int) -> bool:
    """Whether a line counts what it keeps, up to a number: ``if self.count < self.size: self.count += 1``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.If) or not node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0):
            continue
        tests = [test for test in ast.walk(node.test) if isinstance(test, ast.Compare)]
        counters = {last_part(test.left) for test in tests if isinstance(test.ops[0], (ast.Lt, ast.LtE))}
        counters |= {last_part(test.comparators[-1]) for test in tests if isinstance(test.ops[-1], (ast.Gt, ast.GtE))}
        parts = [part for statement in node.body for part in ast.walk(statement)]
        if (counters - {None}) & {_counted_up(part) for part in parts} and not trains(node.body):
            return True  # one that trains counts its steps
    return False


def _counted_up(node: ast.AST) -> str | None:
    """What a statement adds to: ``self.count += 1``, ``self.count = self.count + 1``."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return last_part(node.target)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add):
        name = last_part(node.targets[0])
        return name if name in (last_part(node.value.left), last_part(node.value.right)) else None
    return None


def is_comprehension(node: ast.AST, name: str, line: int) -> bool:
    """Whether a statement on a line gives a name what a comprehension collects, and nothing of what was there."""
    if not assigns(node, name) or not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return False
    if not node.lineno <= line <= (node.end_lineno or node.lineno):
        return False
    return isinstance(node.value, (ast.ListComp, ast.DictComp, ast.SetComp))


def is_asked_first(function: ast.AST, line: int) -> bool:
    """Whether a function stores under a key, and looks for the key beforehand: ``if key not in self.cache: ...``.

    By the name that the statement itself uses, which may be a parameter or another name of what it fills.
    """
    stored: set[str | None] = set()
    asked: set[str | None] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and node.lineno <= line <= (node.end_lineno or node.lineno):
            stored |= {last_part(target.value) for target in node.targets if isinstance(target, ast.Subscript)}
        elif getattr(node, "lineno", line + 1) <= line:
            asked.add(_asked(node))
    return bool(stored & (asked - {None}))


def _asked(node: ast.AST) -> str | None:
    """Whose keys are asked for: ``key in cache``, ``cache.get(key)``, ``cache[key]`` where KeyError is caught."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        return last_part(node.comparators[0])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        return last_part(node.func.value)
    if isinstance(node, ast.Try) and any(last_part(h.type) == "KeyError" for h in node.handlers if h.type is not None):
        reads = (part for statement in node.body for part in ast.walk(statement) if isinstance(part, ast.Subscript))
        return next((last_part(part.value) for part in reads), None)
    return None


def _is_by_index(node: ast.AST, name: str, line: int, function: ast.AST) -> bool:
    """Whether a dataset stores something under the index that it was asked for: ``self.cache[i] = sample``."""
    if not isinstance(function, ast.FunctionDef) or function.name != "__getitem__" or len(function.args.args) < 2:
        return False
    if not isinstance(node, ast.Assign) or not node.lineno <= line <= (node.end_lineno or node.lineno):
        return False
    index = function.args.args[1].arg
    return any(
        isinstance(target, ast.Subscript)
        and last_part(target.value) == name
        and isinstance(target.slice, ast.Name)
        and target.slice.id == index
        for target in node.targets
    )


def assigns(node: ast.AST, name: str) -> bool:
    """Whether a node gives a name, or an attribute of that name, a value."""
    if isinstance(node, ast.Assign):
        return any(last_part(part) == name for target in node.targets for part in _parts(target))
    if isinstance(node, ast.NamedExpr):
        return node.target.id == name
    return isinstance(node, ast.AnnAssign) and node.value is not None and last_part(node.target) == name


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    """What an assignment gives a value: each of ``preds, labels = [], []``; not the element of ``x[i] = y``."""
    if isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from _parts(element)
    elif isinstance(target, ast.Starred):
        yield from _parts(target.value)
    elif not isinstance(target, ast.Subscript):
        yield target

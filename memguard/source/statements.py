"""The statement that makes something grow, by the syntax tree; only places a line for what was proven at run time."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable

from memguard.source.chains import chain_of, last_name
from memguard.source.search import Search
from memguard.source.sought import Hints, Sought, Statement
from memguard.source.syntax import Sources
from memguard.source.values import may_carry

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp)
_INLINED = (ast.ListComp, ast.SetComp) if sys.version_info >= (3, 12) else ()
"""Those that run in the frame of the function around them."""


def find_statement(sought: Sought, files: Iterable[str], sources: Sources, hints: Hints) -> Statement | None:
    """The statement that best explains how tensors came under a name.

    Args:
        sought: The name and what lies under it.
        files: Files in which an attribute or a global may be stored, likeliest first.
        sources: The parsed files.
        hints: What is known of the run.
    """
    search = Search(sought, sources, hints)
    search.everywhere([*([sought.file] if sought.file else []), *files])
    return max(search.found, key=lambda statement: (statement.score, -statement.line), default=None)


def is_alias(sought: Sought, sources: Sources) -> bool:
    """Whether a variable only stands for something with a name of its own: ``log = self.log``, a loop's variable."""
    source = sources.get(sought.file) if sought.file is not None else None
    owner = source.function_at(sought.first_line, sought.function or "<module>") if source is not None else None
    if owner is None:
        return False
    stores = [s for s in owner.stores if isinstance(s.target, ast.Name) and s.target.id == sought.name]
    return bool(stores) and all(
        not store.augmented and (store.from_loop or len(chain_of(store.value) or ()) > 1) for store in stores
    )


def find_collecting(
    running: Iterable[tuple[str, int, str | None]], sources: Sources, *, graph: bool = True
) -> Statement | None:
    """A comprehension or generator expression that is being evaluated: what it has collected has no name yet.

    Args:
        running: (file, line, name of the code of the user's that runs there) of the frames on the stack, innermost
            first: the function that is called, or the comprehension itself; None where neither has a frame.
        sources: The parsed files.
        graph: Whether a graph is kept, else any tensor.
    """
    for file, line, called in running:
        # Where nothing of the user's is called, a generator would be running itself, as "<genexpr>".
        kinds = _COMPREHENSIONS if called is not None else _INLINED
        source = sources.get(file)
        for function in source.functions if source is not None else ():
            if source is None:
                continue
            for store in function.stores:
                if not store.line <= line <= store.end_line or store.from_loop or (graph and store.no_grad):
                    continue
                parts = [node for node in ast.walk(store.value) if isinstance(node, kinds)]
                if called is not None and _calls_outside(store.value, called, parts):
                    continue  # they are the arguments of a call that is running
                if parts and any(may_carry(part.elt, function, graph=graph) for part in parts):
                    text = source.text(store.line, store.end_line)
                    return Statement(file, store.line, function.name, text, True, loops=True, score=1.0)
    return None


def _calls_outside(value: ast.expr, called: str, comprehensions: Iterable[ast.expr]) -> bool:
    """Whether an expression calls a function of some name, and not within its comprehensions."""
    inside = {id(node) for part in comprehensions for node in ast.walk(part)}
    calls = (node for node in ast.walk(value) if isinstance(node, ast.Call) and id(node) not in inside)
    return any(last_name(call.func) == called for call in calls)

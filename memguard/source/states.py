"""States that a program carries from batch to batch: what is made from its own old value."""

from __future__ import annotations

import ast

from memguard.records.facts import Place
from memguard.source.expressions import called_name, last_part, symbol_of
from memguard.source.model import SourceModel
from memguard.source.name_query import Anchor, depends
from memguard.source.scopes import Scope
from memguard.source.vocabulary import JOINS


def makes_state(place: Place) -> bool:
    """Whether the statement at a place makes all that a name has, or some rows of it, from what it was.

    ``self.memory = self.cell(x, self.memory)``: a memory, a moving average. The old value may go through variables, and
    through methods that read it. What adds in place is a sum, and what joins old and new collects.
    """
    model, (name, attribute) = SourceModel.of(place.file), symbol_of(place.holder)
    if model is None or place.line is None or not name:
        return False
    scope, anchor = model.scope_at(place.line), Anchor(name, attribute)
    for store in scope.stores:
        if store.line <= place.line <= store.end_line and last_part(store.target) == name and not store.augmented:
            value = _followed(store.value, store.line, scope)
            return not _is_joined(value) and depends(store.value, store.line, anchor, model, scope, set())
    return False


def _followed(value: ast.expr, line: int, scope: Scope) -> ast.expr:
    """What a variable was given last before a line; of any other expression it itself."""
    if not isinstance(value, ast.Name):
        return value
    given = [(at, fed) for fed, at, _ in scope.feeds(value.id) if at < line]
    return max(given, key=lambda pair: pair[0])[1] if given else value


def _is_joined(value: ast.expr) -> bool:
    """Whether old and new are side by side, as in a queue: ``torch.cat([k, self.queue])[:size]`` collects."""
    if isinstance(value, ast.IfExp):
        return _is_joined(value.body) or _is_joined(value.orelse)
    while isinstance(value, ast.Subscript):
        value = value.value
    return isinstance(value, ast.Call) and called_name(value) in JOINS

"""What a backward formula does in place on ordinary tensors, though it must not where tensors may be of any kind.

The formulas in FunctionsManual.cpp ask ``isTensorSubclassLike`` and then, under a dispatch mode, take an operator that
makes a new tensor of what they themselves have just made.
"""

from __future__ import annotations

from typing import Any

import torch

_aten: Any = torch.ops.aten

IN_PLACE: dict[Any, Any] = {
    _aten.scatter_add.default: _aten.scatter_add_.default,
    _aten.scatter.src: _aten.scatter_.src,
    _aten.scatter.value: _aten.scatter_.value,
    _aten.index_add.default: _aten.index_add_.default,
    _aten.index_put.default: _aten.index_put_.default,
    _aten.masked_scatter.default: _aten.masked_scatter_.default,
    _aten.index_fill.int_Scalar: _aten.index_fill_.int_Scalar,
    _aten.index_fill.int_Tensor: _aten.index_fill_.int_Tensor,
}
"""Operators called by the autograd engine itself -> what it would call."""

REUSING = frozenset((_aten.sub.Tensor, _aten.mul.Tensor))
"""Operators that some formulas apply in place to what they made, and then drop."""
_NODES = frozenset(("BinaryCrossEntropyWithLogitsBackward0",))


def reuses_its_operand() -> bool:
    """Whether the engine is at a formula that would have worked in place on ordinary tensors."""
    node = torch._C._current_autograd_node()
    return node is not None and node.name() in _NODES

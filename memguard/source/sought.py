"""What is looked for in the syntax tree, and what is found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Sought:
    """A name that holds something, and what lies between the name and the tensors."""

    name: str
    attribute: bool = False
    """Whether the name is an object's attribute, else it is a variable."""
    file: str | None = None
    """For a variable: the file of its function or module."""
    first_line: int = 0
    function: str | None = None
    """For a variable: its function, None for a module's global."""
    classes: tuple[str, ...] = ()
    """For an attribute: names of the owner's classes, in the order of inheritance."""
    base: str | None = None
    """For an attribute: the name under which its owner was met."""
    own_classes: tuple[str, ...] = ()
    """Names of the user's classes of the value itself: a list that logs in methods of its own."""
    kinds: tuple[str, ...] = ()
    """Kinds of the objects from the name's own value down to the tensor, like ("dict", "list", "tensor")."""
    keys: tuple[str | int | None, ...] = ()
    """The key that leads from each of these to the next, None where it has no constant one."""
    grows: int = 0
    """Position of the longest container among `kinds`."""


@final
@dataclass(frozen=True, slots=True)
class Hints:
    """What is known of the run beside the name."""

    graph: bool = True
    """Whether a graph is kept (a detached value cannot), else any tensor."""
    numbers: bool = False
    """Whether plain values count as well."""
    running: frozenset[tuple[str, int]] = frozenset()
    """(file, first line) of the functions on the stack."""
    calling: frozenset[tuple[str, int]] = frozenset()
    """Those that were seen to call a model while graphs piled up."""
    cells: tuple[frozenset[str], ...] = ()
    """Files that share their globals, like the cells of a notebook."""
    names: frozenset[str] = frozenset()
    """Variables that refer to the same tensors."""
    evaluates: bool | None = None
    """Whether the tensors come from an evaluation stage, if known."""


@final
@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that makes the holder grow, or gives it its value."""

    file: str
    line: int
    function: str
    source: str
    grows: bool
    """Whether it adds to what was there; False for a plain assignment."""
    loops: bool = False
    """Whether it stands in a loop."""
    quiet: bool = False
    """Whether it stands in a function that prepares, like ``__init__``."""
    certain: bool = True
    """False for a call that only may store what it is given, like ``metric(output)`` of an installed class."""
    score: float = field(default=0.0, compare=False)

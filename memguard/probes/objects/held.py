"""How one object holds another, and the variables of a frame or module as an object."""

from __future__ import annotations

import enum
import types
from dataclasses import dataclass
from typing import Any, final

from memguard.probes.objects.frames import read_locals


class Via(enum.Enum):
    """How one object holds another."""

    LOCAL = "local"
    GLOBAL = "global"
    CLOSURE = "closure"
    DEFAULT = "default"
    ATTRIBUTE = "attribute"
    ITEM = "item"
    ROOT = "root"
    PART = "part"
    """A part without a name of its own: the function of a method, the frame of a generator."""


Held = tuple[Via, "str | int | None", Any]
"""How, under which name or key (None where it has none that is worth telling), and the object."""


@final
@dataclass(slots=True, eq=False)
class Scope:
    """The variables of a frame or a module, as an object that a walk can enter."""

    variables: dict[str, Any]
    file: str
    function: str | None = None
    """None for a module's globals."""
    first_line: int = 0
    """Line of the function's first decorator or of its ``def``."""
    line: int | None = None
    """Line that runs."""

    @classmethod
    def of_frame(cls, frame: types.FrameType) -> Scope:
        """The scope of a running or finished frame."""
        code = frame.f_code
        function = None if code.co_name == "<module>" else getattr(code, "co_qualname", code.co_name)
        return cls(read_locals(frame), code.co_filename, function, code.co_firstlineno, frame.f_lineno)

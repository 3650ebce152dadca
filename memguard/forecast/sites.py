"""Where an operator comes from: the user's line, the module, the phase. In a backward, those of its forward."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType, ModuleType

import torch

from memguard.forecast.fakes.streams import current
from memguard.forecast.trace import Site

_sequence_number: Callable[[], int] = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]
"""The number that the next node of a graph will have."""
_LIBRARIES = ("torch", "lightning", "pytorch_lightning", "lightning_fabric", "memguard", "contextlib")


def _folder(module: ModuleType | None) -> str | None:
    file = getattr(module, "__file__", None)
    return os.path.dirname(file) + os.sep if file else None


class Sites:
    """Interned places, and the little state needed to tell them: the module stack and the optimizer's depth."""

    def __init__(self) -> None:
        self.table: list[Site] = []
        self._numbers: dict[Site, int] = {}
        self._is_user: dict[CodeType, bool] = {}
        self._folders = tuple(
            folder for name in _LIBRARIES if (folder := _folder(sys.modules.get(name))) and name != "contextlib"
        )
        self._own = _folder(sys.modules["memguard"]) or ""
        self._optim = os.path.join(os.path.dirname(torch.__file__), "optim") + os.sep
        self._host = (self._optim, os.path.join(os.path.dirname(torch.__file__), "random.py"))
        self.modules: list[str] = []
        self.outermost: CodeType | None = None
        """The code that runs the user's step; what called that is a command, a test or a script of its own."""
        self.optimizer_depth = 0
        self.stepping = False
        self._of_sequence: dict[int, int] = {}
        self._backward: dict[int, int] = {}
        """Of a place in the forward, the same in the backward."""
        self._streams: dict[int, int] = {}
        """Of nodes whose forward ran on another stream than the default one: there their backward runs too."""
        self._sequence = _sequence_number()
        self.setup = self._intern(Site(None, None, None, "", "setup"))

    def _intern(self, site: Site) -> int:
        number = self._numbers.get(site)
        if number is None:
            number = self._numbers[site] = len(self.table)
            self.table.append(site)
        return number

    def _user(self, code: CodeType) -> bool:
        answer = self._is_user.get(code)
        if answer is None:
            name = code.co_filename
            answer = not (name.startswith(self._folders) or name.startswith("<") or name.endswith("contextlib.py"))
            self._is_user[code] = answer
        return answer

    def _place(self, frame: FrameType | None) -> FrameType | None:
        """The innermost frame of the user's code, else of a library; never memguard's."""
        library = None
        while frame is not None and frame.f_code is not self.outermost:
            if self._user(frame.f_code):
                return frame
            if library is None and not frame.f_code.co_filename.startswith((self._own, "<")):
                library = frame
            frame = frame.f_back
        return library

    def in_host_code(self, frame: FrameType | None) -> bool:
        """Whether the tensor being made belongs on the CPU whatever the user's device: an optimizer's step counter."""
        for _ in range(3):
            if frame is None:
                return False
            if frame.f_code.co_filename.startswith(self._host):
                return True
            frame = frame.f_back
        return False

    def called_by_user(self, frame: FrameType) -> bool:
        """Whether the operator stands in the user's own code, up to modes that see it on its way."""
        while frame.f_code.co_name == "__torch_function__" and frame.f_back is not None:
            frame = frame.f_back
        return self._user(frame.f_code)

    def index(self, frame: FrameType | None) -> int:
        """The number of the place from which the operator at `frame` was called."""
        node = torch._C._current_autograd_node()
        current.of_node = self._streams.get(node._sequence_nr(), 0) if self._streams and node is not None else 0
        if node is not None:
            forward = self._of_sequence.get(node._sequence_nr())
            if forward is not None:
                number = self._backward.get(forward)
                if number is None:
                    number = self._backward[forward] = self._intern(self.table[forward]._replace(phase="backward"))
                return number
        frame = self._place(frame)
        phase = "setup" if not self.stepping else "optimizer" if self.optimizer_depth else "forward"
        if node is not None:
            phase = "backward"
        module = self.modules[-1] if self.modules else ""
        if frame is None:
            number = self._intern(Site(None, None, None, module, phase))
        else:
            code = frame.f_code
            number = self._intern(Site(code.co_filename, frame.f_lineno, code.co_name, module, phase))
        sequence = _sequence_number()
        for value in range(self._sequence, sequence):
            self._of_sequence[value] = number
            if current.stream.number:
                self._streams[value] = current.stream.number
        self._sequence = sequence
        return number

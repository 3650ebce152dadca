"""Frames of the user's code, their variables, and the line that runs now."""

from __future__ import annotations

import dis
import functools
import inspect
import linecache
import os
import re
import site
import sys
import sysconfig
import threading
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType

from memguard.records.facts import NOWHERE, Place

# fmt: off
LIBRARIES = frozenset({
    "torch", "torchvision", "torchaudio", "torchmetrics", "torch_geometric", "lightning", "pytorch_lightning",
    "lightning_fabric", "lightning_utilities", "transformers", "accelerate", "numpy", "pytest", "_pytest", "pluggy",
    "IPython", "ipykernel", "memguard",
})
# fmt: on
MAX_FAILED = 512
"""Frames of one traceback that are read."""
_DEBUGGERS = frozenset({"bdb.py", "pdb.py", "pydevd.py", "pydevd_frame.py"})
_PYTEST = "@py_builtins"
"""Stands in the code of functions whose asserts pytest rewrote; the ``locals()`` in it runs only after a failure."""
_SNAPSHOTS = sys.version_info < (3, 13)
"""Before PEP 667 `frame.f_locals` of a function stays on the frame, as a dict that keeps every local alive."""


@functools.cache
def _library_folders() -> tuple[str, ...]:
    paths = [sysconfig.get_paths().get(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths += [*site.getsitepackages(), site.getusersitepackages(), str(Path(__file__).parents[1])]
    found = {os.path.realpath(path) for path in paths if path} | {path for path in paths if path}
    return tuple(sorted(path.rstrip(os.sep) + os.sep for path in found))


@functools.lru_cache(maxsize=8192)
def is_user_file(filename: str) -> bool:
    """Whether a source file is the user's: not the standard library, an installed package or memguard itself."""
    if filename.startswith("<"):
        return filename.startswith(("<ipython", "<stdin"))
    if f"{os.sep}site-packages{os.sep}" in filename or f"{os.sep}dist-packages{os.sep}" in filename:
        return False
    return not os.path.abspath(filename).startswith(_library_folders())


def is_user_module(name: str, filename: str | None) -> bool:
    """Whether a module is the user's, by its name and its file (None for one without, like ``__main__`` in a shell)."""
    if name.partition(".")[0] in LIBRARIES:
        return False
    return name == "__main__" if filename is None else is_user_file(filename)


def is_user_frame(frame: FrameType) -> bool:
    """Whether a frame runs the user's code."""
    name = frame.f_globals.get("__name__")
    return is_user_module(name if type(name) is str else "", frame.f_code.co_filename)


def starts_program(frame: FrameType) -> bool:
    """Whether `memguard run` starts the program in a frame: what called it is no part of that program."""
    return frame.f_code.co_name == "execute" and frame.f_globals.get("__name__") == "memguard.integrations.main_program"


def user_frames(frame: FrameType | None = None) -> Iterator[FrameType]:
    """The user's frames, innermost first: those of the calling thread, then those of the main thread.

    Args:
        frame: Where to begin; the caller's frame if not given.
    """
    start: FrameType | None = sys._getframe(1) if frame is None else frame
    while start is not None and not is_user_frame(start):
        start = start.f_back  # a frame of ours may hold the iterator: with that it would be a reference cycle
    return _user_frames(start)


def _user_frames(start: FrameType | None) -> Iterator[FrameType]:
    is_main = threading.current_thread() is threading.main_thread()
    while start is not None or not is_main:
        if start is None:
            is_main, start = True, sys._current_frames().get(threading.main_thread().ident or 0)
        elif is_user_frame(start):
            yield start
            start = start.f_back
        else:
            start = None if starts_program(start) else start.f_back


def frames_from(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and all that called it, innermost first. To be gone through at once: it holds the frame it came to."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def running_frames() -> set[int]:
    """Ids of the frames that run on this thread."""
    return set(map(id, frames_from(sys._getframe(1))))


def failed_frames(error: BaseException, running: Collection[int]) -> Iterator[tuple[FrameType, int]]:
    """The frames that an exception came through and that are over, with their lines, outermost first.

    Args:
        error: The exception.
        running: Ids of the frames that run, which hold what they hold anyway.
    """
    trace = BaseException.__dict__["__traceback__"].__get__(error)
    for _ in range(MAX_FAILED):
        if trace is None:
            break
        if id(trace.tb_frame) not in running:
            yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def function_key(frame: FrameType) -> tuple[str, int]:
    """File and first line of the function that a frame runs, as the syntax tree knows it too."""
    return frame.f_code.co_filename, frame.f_code.co_firstlineno


def read_locals(frame: FrameType) -> dict[str, object]:
    """The local variables of a frame, as a dict of the caller's own.

    On Python 3.12 and before, the snapshot that reading leaves on the frame is emptied again, unless somebody else has
    it: a debugger at work, or the user who called ``locals()`` (such a frame is not read at all, for reading would
    change the user's dict). While a trace function written in Python runs, the interpreter itself fills it anew.
    """
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED:  # a module or a class body: the dict is the namespace itself
        return dict(frame.f_locals)
    if not _SNAPSHOTS:
        return dict(frame.f_locals)
    if "locals" in code.co_names and _PYTEST not in code.co_names and _calls_locals(code):
        return {}
    snapshot = frame.f_locals
    found = dict(snapshot)
    # Known holders: the frame, `snapshot`, and getrefcount's own argument.
    if type(snapshot) is dict and sys.getrefcount(snapshot) <= 3 and not _in_debugger():
        snapshot.clear()
    return found


@functools.lru_cache(maxsize=256)
def _calls_locals(code: CodeType) -> bool:
    return any(step.argval == "locals" and step.opname == "LOAD_GLOBAL" for step in dis.get_instructions(code))


def _in_debugger() -> bool:
    """Whether a debugger's callback is on the stack: it would write an emptied snapshot back to the variables."""
    if sys.gettrace() is None:
        return False
    files = (frame.f_code.co_filename for frame in frames_from(sys._getframe(1)))
    return any(os.path.basename(file) in _DEBUGGERS for file in files)


def is_module_level(code: CodeType) -> bool:
    """Whether code is that of a whole module (or notebook cell), whose locals are globals."""
    return code.co_name == "<module>"


def is_script(file: str) -> bool:
    """Whether a file is the program itself, whose variables nobody reads but its own text; a shell's user may."""
    main = sys.modules.get("__main__")
    name = vars(main).get("__file__") if main is not None else None
    return type(name) is str and name == file and not sys.flags.interactive


def call_site() -> Place:
    """Where the user's innermost function stands at this moment; nowhere if no code of the user's is running."""
    frame = next(user_frames(sys._getframe(1)), None)
    return NOWHERE if frame is None else place_of(frame)


def place_of(frame: FrameType) -> Place:
    """A frame's current line as a place."""
    code = frame.f_code
    return Place(file=code.co_filename, line=frame.f_lineno, function=str(getattr(code, "co_qualname", code.co_name)))


def find_call(site: Place, *functions: str, below: bool = False, above: bool = False, text: str = "") -> Place | None:
    """The line near a place that calls a function of one of these names; None without one.

    Args:
        site: Where to begin.
        *functions: Names, the last part of a dotted one.
        below: Whether only lines below the place count; else those above come after them.
        above: Whether those above come first, the nearest before all.
        text: What else the line contains.
    """
    if site.file is None or site.line is None:
        return None
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, functions))})\s*\(")
    lines = linecache.getlines(site.file)
    before = () if below else range(min(site.line, len(lines)) - 1, -1, -1)
    after = range(site.line, len(lines))
    for index in (*before, *after) if above else (*after, *before):
        code = lines[index].partition("#")[0]
        if pattern.search(code) and text in code and not code.lstrip().startswith("def "):
            return Place(file=site.file, line=index + 1, function=site.function, source=code.strip())
    return None


def find_only_call(files: Iterable[str], function: str) -> Place | None:
    """The line that calls a function, if just one line of some files does: where an object comes from.

    Args:
        files: The files.
        function: The function's or class's name, the last part of a dotted one.
    """
    pattern, found = re.compile(rf"(?<!class )(?<!def )\b{re.escape(function)}\s*\("), []
    for file in files:
        for number, line in enumerate(linecache.getlines(file), 1):
            if pattern.search(code := line.partition("#")[0]):
                found.append(Place(file=file, line=number, source=code.strip()))
    return found[0] if len(found) == 1 else None

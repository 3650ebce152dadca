"""Runs a small training script with a crude ledger, and names who holds the old graphs or outputs."""

from __future__ import annotations

import sys
import textwrap
import types
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import tree_leaves

from memguard.autograd.reach import Reach
from memguard.evidence.naming.holders import Holder, HolderSearch
from memguard.heap.frames import user_frames
from memguard.records.stats import Stage

KEY = "tests.evidence.scripts"
MARK = "# <-"

PRELUDE = """\
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
def batches(n=14):
    for _ in range(n):
        yield torch.randn(4, 8), torch.randn(4, 1)
"""


@dataclass
class Mark:
    step: int


class Ledger:
    """Marks the outputs of all modules; names at the start of the root forward number `at`."""

    def __init__(self, *, graph: bool, at: int, stage: Stage | None, extra: Any) -> None:
        self.graph, self.at, self.stage, self.extra = graph, at, stage, extra
        self.depth = self.step = 0
        self.after_step = False
        self.outputs: list[tuple[int, StorageWeakRef]] = []
        self.roots: dict[int, weakref.ref[torch.nn.Module]] = {}
        self.holders: tuple[Holder, ...] | None = None

    def before(self, module: torch.nn.Module, args: object) -> None:
        if self.depth == 0:
            self.step += 1
            self.roots[id(module)] = weakref.ref(module)
            if self.step == self.at and self.holders is None and not self.after_step:
                self.name(sys._getframe(1))
        self.depth += 1

    def stepped(self, *args: object) -> None:
        if self.after_step and self.step >= self.at and self.holders is None:
            self.name(sys._getframe(1))

    def after(self, module: torch.nn.Module, args: object, output: object) -> None:
        self.depth -= 1
        for tensor in tree_leaves(output):
            if not isinstance(tensor, torch.Tensor):
                continue
            if tensor.grad_fn is not None and KEY not in tensor.grad_fn.metadata:
                tensor.grad_fn.metadata[KEY] = Mark(self.step)
            if self.depth == 0:
                self.outputs.append((self.step, StorageWeakRef(tensor.untyped_storage())))

    def name(self, frame: types.FrameType) -> None:
        extra = self.extra() if self.extra is not None else ()
        models = [model for ref in self.roots.values() if (model := ref()) is not None]
        search = HolderSearch(models=models, extra=extra, frames=user_frames(frame))
        if self.graph:
            reach = Reach(KEY, lambda mark: mark.step <= self.step - 3)
            self.holders = search.find(reach, stage=self.stage, passes=reach.passes)
            return
        old = {ref.cdata for step, ref in self.outputs if step <= self.step - 3 and not ref.expired()}

        def judge(tensor: torch.Tensor) -> int | None:
            storage = tensor.untyped_storage()
            return storage.nbytes() if storage._cdata in old else None

        self.holders = search.find(judge, stage=self.stage, graph=False)


@contextmanager
def user_module(source: str, path: Path, name: str) -> Iterator[types.ModuleType]:
    """A module of the user's, made from source, importable while the context lasts."""
    path.write_text(source)
    module = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        yield module
    finally:
        del sys.modules[name]


def run(
    source: str,
    tmp_path: Path,
    *,
    graph: bool = True,
    at: int = 10,
    stage: Stage | None = None,
    extra: str | None = None,
    others: dict[str, str] | None = None,
    after_step: bool = False,
) -> tuple[Holder, ...]:
    """Runs a script and returns who was named; `extra` is an expression for more roots, evaluated in the script.

    Named is at the start of the forward number `at`, or at the end of the optimizer step after it.
    """
    text = PRELUDE + textwrap.dedent(source)
    path = tmp_path / "script.py"
    with user_module(text, path, "script") as module:
        more = []
        for name, other in (others or {}).items():
            file = tmp_path / f"{name}.py"
            if name.startswith("installed_"):
                file = tmp_path / "site-packages" / f"{name}.py"
                file.parent.mkdir()
            context = user_module(textwrap.dedent(other), file, name)
            loaded = context.__enter__()
            more.append(context)
            exec(compile(textwrap.dedent(other), str(file), "exec"), loaded.__dict__)
        ledger = Ledger(
            graph=graph, at=at, stage=stage, extra=None if extra is None else lambda: eval(extra, module.__dict__)
        )
        ledger.after_step = after_step
        handles = [
            register_module_forward_pre_hook(ledger.before),
            register_module_forward_hook(ledger.after),
            register_optimizer_step_post_hook(ledger.stepped),
        ]
        try:
            exec(compile(text, str(path), "exec"), module.__dict__)
        finally:
            for handle in handles:
                handle.remove()
            for context in more:
                context.__exit__(None, None, None)
    assert ledger.holders is not None, "the script made too few forwards"
    return ledger.holders


def marked_lines(path: Path) -> set[int]:
    """Numbers of the lines that carry the mark."""
    return {number for number, line in enumerate(path.read_text().splitlines(), 1) if MARK in line}

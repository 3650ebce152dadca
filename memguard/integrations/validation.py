"""The validation guard at work: switches grad mode as `NoGradGuard` decides, and reports it once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from memguard.evidence.graphs.graph_marks import is_compiled
from memguard.evidence.interface import ProbeContext
from memguard.guards.no_grad import Decision, Lookout, NoGradGuard, watch_graph
from memguard.heap.frames import call_site
from memguard.heap.weak_keys import WeakIdentityDict
from memguard.recorder import Recorder
from memguard.records.claims import Claim
from memguard.records.facts import UnusedGraphs
from memguard.records.findings import Severity
from memguard.records.stats import Stage
from memguard.text.places import place_text

CODE, NAME = "MG001", "validation-guarded"
_PATCH = "memguard"
_NO_GRAPH = "does not require grad and does not have a grad_fn"  # checked in torch 2.13
_MOST_PLACES = 3


@dataclass(slots=True)
class _Root:
    """One root model and the guarded forward that is open on it."""

    guard: NoGradGuard
    depth: int = 0
    guarded_at: int = 0
    """Depth of the forward that runs under the guard; 0 is none."""
    lookout: Lookout | None = None
    observe: bool = False
    told: set[tuple[str | None, int | None]] = field(default_factory=set)


@final
class ValidationGuard:
    """Runs forwards in eval mode without a graph where `NoGradGuard` says so.

    Args:
        mode: The option: "guard" acts, "warn" and "off" do not.
        recorder: Told what was done.
        watch: Knows the optimizers.
    """

    def __init__(self, mode: str, recorder: Recorder, watch: ProbeContext) -> None:
        self._acts = mode == "guard"
        self._recorder, self._watch = recorder, watch
        self._roots: WeakIdentityDict[nn.Module, _Root] = WeakIdentityDict()
        self._before: Any = None
        self._ours: Any = None
        self.owes = False
        """Whether gradients are to be given back in the next training forward."""
        self.settled = 0
        """Identity of the model whose last forward in training mode left nothing to learn from the next; 0 is none."""
        self._noticed = False

    def install(self) -> None:
        """Listens for new optimizers: who trains a model decides whether its graphs may be wanted."""
        if not self._acts or self._ours is not None:
            return
        original = self._before = Optimizer.add_param_group
        roots = self._roots

        def add_param_group(optimizer: Optimizer, param_group: dict[str, Any]) -> None:
            original(optimizer, param_group)
            for root in roots.values():
                root.guard.optimizers_changed()

        vars(add_param_group)[_PATCH] = self
        self._ours = add_param_group
        Optimizer.add_param_group = add_param_group  # type: ignore[method-assign, assignment]

    def remove(self) -> None:
        """Takes the listener away, and gives gradients back to a forward that is still open."""
        self._ours = None
        # Runs that overlap may end in any order: one that ended underneath another goes with the last.
        while (top := vars(Optimizer.add_param_group).get(_PATCH)) is not None and top._ours is None:
            Optimizer.add_param_group = top._before  # type: ignore[method-assign]
        self.release()

    def release(self) -> None:
        """Gives gradients back to every guarded forward that is open: hooks of ours will not see its end."""
        self.settled = 0
        if self.owes:
            self.owes = False
            torch._C._set_grad_enabled(True)
        for root in self._roots.values():
            root.depth, root.observe = 0, False
            if root.guarded_at:
                root.guarded_at = 0
                torch._C._set_grad_enabled(True)
            _take_away(root)

    def interrupted(self) -> None:
        """An interrupt left the open forwards without a word to their hooks.

        Gradients are given back in the next training forward, not now: this may be inside a no_grad of the user's.
        """
        self.settled = 0
        for root in self._roots.values():
            root.depth, root.observe = 0, False
            if root.guarded_at:
                root.guarded_at = 0
                self.owes = True
                _take_away(root)

    def wraps(self, wrapper: nn.Module, inner: nn.Module) -> None:
        """A root is a wrapper: what is known of it is known of the model inside."""
        if self._acts and inner not in self._roots:
            self._roots[inner] = _Root(self._root(wrapper).guard)

    def joined(self) -> None:
        """A model is new, and may have the number of one that is gone."""
        self.settled = 0

    def is_trained(self, model: nn.Module) -> bool:
        """Whether nothing is left to learn from a forward of this model in training mode; it stays so."""
        root = self._roots.get(model)
        return not self._acts or (root is not None and root.guard.trained)

    def forward_start(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A root is called: switches gradients off if its graph would be for nobody.

        Need not be told of the `settled` one in training mode, and neither does `forward_end`: depths matter inside of
        a guarded forward alone, from whose start on none is settled.
        """
        if not self._acts:
            return
        if self.owes and model.training:
            self.release()
        root = self._roots.get(model) or self._root(model)
        root.depth += 1
        if model.training or not torch.is_grad_enabled():
            return
        decision = root.guard.decide([*args, *kwargs.values()], self._watch.optimizers)
        root.observe = decision is not Decision.GUARD
        if decision is not Decision.GUARD or root.guarded_at:
            return
        if root.guard.first and not is_compiled(model):
            root.lookout = Lookout()
            root.lookout.__enter__()  # type: ignore[no-untyped-call]
        root.guarded_at, self.settled = root.depth, 0
        torch._C._set_grad_enabled(False)  # what torch.no_grad calls; checked in torch 2.13

    def forward_end(self, model: nn.Module, output: object) -> None:
        """A root has answered (or failed): gradients come back, and the fate of a graph is followed."""
        root = self._roots.get(model)
        if root is None:
            return
        depth = root.depth
        if depth:
            root.depth = depth - 1
        if root.guarded_at:
            if depth == root.guarded_at:
                self._leave(model, root)
            return
        if model.training:
            if root.guard.trained:
                self.settled = 0 if self.owes else id(model)
            elif output is not None:
                watch_graph(output, used=root.guard.saw_training_backward, died=_nothing)
        elif root.observe and output is not None:
            root.observe = False
            watch_graph(output, used=root.guard.saw_evaluation_backward, died=root.guard.on_unused_graph())

    def _leave(self, model: nn.Module, root: _Root) -> None:
        torch._C._set_grad_enabled(True)
        root.guarded_at = 0
        lookout = _take_away(root)
        if lookout is not None and lookout.wished:
            root.guard.saw_engine_inside()
            return
        root.guard.passed()
        self._tell(model, root)

    def explain(self, error: BaseException) -> None:
        """Adds a note to torch's complaint that there is no graph, where that may be the guard's doing."""
        if type(error) is not RuntimeError or _NO_GRAPH not in str(error) or not hasattr(error, "add_note"):
            return
        guarded = [
            place_text(file, line, whole=True) for root in self._roots.values() for file, line in root.told if file
        ]
        if guarded:
            error.add_note(
                "memguard: forwards in eval mode that no backward seemed to follow ran without a graph at "
                f"{', '.join(sorted(guarded)[:_MOST_PLACES])}. If this backward was meant for one of them, put that "
                'forward under `with memguard.allow("grad"):`, or pass validation="warn".'
            )

    def _tell(self, model: nn.Module, root: _Root) -> None:
        """Says once for each place what the guard does, and lets MG201 be told."""
        place = call_site()
        where = (place.file, place.line)
        if where in root.told:
            return
        root.told.add(where)
        name = type(model).__name__
        batch = self._recorder.batch
        self._recorder.learn(
            [
                UnusedGraphs(
                    batch=batch,
                    stage=Stage.VALIDATION,
                    place=place,
                    module=name,
                    count=0,
                    first_batch=batch,
                    prevented=True,
                )
            ]
        )
        if self._noticed:
            return
        self._noticed = True
        at = f" (first at {place_text(place.file, place.line, whole=True)})" if place.file else ""
        self._recorder.add(
            Claim(
                code=CODE,
                name=NAME,
                severity=Severity.INFO,
                message=f"forwards of {name} in eval mode run without an autograd graph from here on{at}: "
                "gradients were enabled there, but no backward uses them.",
                advice="nothing to do. If you adapt weights or need gradients in eval mode, put that forward under "
                '`with memguard.allow("grad"):`, or pass validation="warn" to switch the guard off.',
                file=place.file,
                line=place.line,
                function=place.function,
                holder=name,
                stage=Stage.VALIDATION,
                batch=batch,
            )
        )

    def _root(self, model: nn.Module) -> _Root:
        root = self._roots.get(model)
        if root is None:
            root = self._roots[model] = _Root(NoGradGuard(model, several=self._recorder.run.world_size > 1))
        return root


def _take_away(root: _Root) -> Lookout | None:
    lookout = root.lookout
    if lookout is not None:
        lookout.leave()
        root.lookout = None
    return lookout


def _nothing() -> None:
    pass

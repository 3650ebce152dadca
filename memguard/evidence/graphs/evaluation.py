"""Graphs that died without a backward: evaluation with gradients enabled, teachers that nothing trains."""

from __future__ import annotations

import sys
import weakref
from typing import final

from torch import nn

from memguard.evidence.graph_tracker import ForwardGraph
from memguard.evidence.graphs.evaluated_models import (
    MIN_UNUSED,
    CallLine,
    EvalLines,
    EvaluatedModel,
    is_fed,
    outermost_of,
    place_asked,
)
from memguard.evidence.interface import Probe
from memguard.evidence.naming.call_stacks import asking_frame, judging_frame, line_to_change, stack_of
from memguard.evidence.sizes import graph_bytes
from memguard.heap.frames import place_of
from memguard.heap.parameters import held_parameters, is_optimized
from memguard.heap.roots import submodules_of
from memguard.records.facts import NOWHERE, Place, UnusedGraphs
from memguard.records.stats import Stage
from memguard.source.fate import keeps_graph
from memguard.thresholds import LEAST, least_of_device, least_of_peak

MIN_FROZEN = 4
"""Unused graphs of a model beside another that is trained."""
STACKS = 4
"""Calls of each model whose whole way is noted."""
SITED = 128
"""Forwards of a model, of which one graph was used, that are told apart by the line that called it."""
_TRAIN = Stage.TRAIN  # asked in each batch; an attribute of an Enum is looked up through its metaclass


@final
class EvaluationProbe(Probe):
    """Follows each forward's graph to its end, and asks whether a backward ran through it.

    One backward ever through a graph of this model and mode (attribution, forces, training in eval mode) silences it
    for good.
    """

    def _prepare(self) -> None:
        self._models: dict[tuple[int, bool], EvaluatedModel] = {}
        self._inner: list[ForwardGraph] = []
        self._used_batches: dict[int, int] = {}
        self._lines, self._calls = EvalLines(), EvalLines(training=True)
        self._used_steps: dict[int, int] = {}
        """The model of the last graph used, by the optimizer steps before it: a step may take several batches."""
        self._waiting: dict[tuple[int, bool], EvaluatedModel] = {}
        self._kept: set[int] = set()
        """Models whose graphs of evaluation are kept, once that was told here too."""
        self._captives = False
        """Whether any model has a captive line."""

    def on_forward_end(self, module: nn.Module, args: tuple[object, ...], output: object) -> None:
        """Notes who called; sizes one graph for each model."""
        mark = self.watch.ledger.current
        if mark is None:
            return
        model = self._models.get((id(module), module.training))
        if model is None or model.ref() is not module:
            model = EvaluatedModel(weakref.ref(module), type(module).__name__)
            self._models[id(module), module.training] = model
        model.forwards += 1
        if model.told >= 2 or (model.used and (module.training or model.forwards > SITED)):
            if mark.module in self.watch.doubted and model.told < 2:
                if mark.outer is None:
                    mark.site, mark.asked = place_asked(strict=True), place_asked(strict=False)
                self._calls.answered(module, mark, output, self.watch.ledger)
            return
        # What evaluation builds on another model's graph has one for that reason alone: the other is to be told.
        mark.fed = mark.stage is not Stage.TRAIN and is_fed(args, module)
        if mark.outer is not None:  # the line that matters is the one that called the outermost model
            self._inner.append(mark)
        else:
            mark.site, mark.asked = place_asked(strict=True), self._asked(model)
            for inner in self._inner:
                inner.site, inner.asked = mark.site, mark.asked
            self._inner.clear()
            self._lines.answered(module, mark, output, self.watch.ledger)
            if len(model.stacks) < STACKS:
                model.stacks.append(stack_of(module))
        self._calls.answered(module, mark, output, self.watch.ledger)
        if model.used:
            return
        # Of a model in training one graph must have died unused: to walk it takes milliseconds.
        if not model.sized and (model.unused if module.training else model.forwards >= 2):
            model.sized = True
            model.bytes = graph_bytes(module, output)

    def on_batch_end(self) -> None:
        """Looks at what died since, and concludes."""
        if self._inner:
            self._inner.clear()
        watch, models = self.watch, self._models
        if watch.doubted or not watch.ledger.is_ordinary:
            self._settle_calls(watch.ledger.died)
        if len(models) == 1 and not (watch.retained or self._captives):
            (model,) = models.values()
            if model.used:
                return  # it is alone and trained: there is nothing to tell
        self._settle()

    def on_stage_end(self, stage: Stage) -> None:
        """Looks at what died with the stage's last variables; the end of a run takes optimizers away with them."""
        self._settle_calls(self.watch.ledger.died)
        self._settle(ended=True)

    def _settle(self, *, ended: bool = False) -> None:
        marks = [*self.watch.ledger.died, *self._kept_marks()]
        changed, self._waiting = (self._waiting, {}) if ended else ({}, self._waiting)
        if not (marks or changed) or (len(self._models) == 1 and next(iter(self._models.values())).used):
            return  # of a model that is alone and trained there is nothing to tell
        for mark in (*marks, *list(self.watch.ledger.live.values())):
            if mark.used and mark.module:
                self._used_batches[mark.batch] = self._used_steps[mark.steps] = mark.module
                model = self._models.get((mark.module, mark.training))
                if model is not None:
                    model.used += 1
                    model.last_used = max(model.last_used, mark.batch)
        for mark in marks:
            model = self._models.get((mark.module, mark.training))
            if model is None or (mark.module in self._kept and not mark.training and not mark.alive):
                continue  # it was counted while it was kept
            if mark.site is not None and not mark.fed:
                model.sites.setdefault(mark.site, [0, 0])[not mark.used] += 1
            few = model.unused + 1 < MIN_UNUSED and not model.beside
            line = self._lines.died(mark, model.name, few=few and not model.used) if not mark.alive else None
            if line is not None and (model.used or few) and not self._differentiates(model):
                self._tell_line(model, *line)
            if mark.used or mark.fed:
                if model.used:
                    self._conclude_sites(model, training=mark.training)
                continue
            model.unused += 1
            model.batches += mark.batch != model.last_batch
            model.last_batch = mark.batch
            model.first_batch = mark.batch if model.first_batch is None else model.first_batch
            model.kept = model.kept or mark.alive
            if mark.site is not None and mark.site.file is not None and not model.told:  # once told its line stays
                model.place, model.asked = mark.site, mark.asked or mark.site
                model.askers[model.place] = model.asked
            other = mark.module, not mark.training
            near = [self._used_batches.get(mark.batch + by, mark.module) for by in (0, 1)]
            if mark.stage is Stage.TRAIN:
                near.append(self._used_steps.get(mark.steps, mark.module))
            in_row = model.row[1] if model.row[0] == mark.steps else 0
            if any(trained != mark.module for trained in near):
                model.beside += 1 + max(in_row, 0)
                model.row = (mark.steps, -1)
            elif mark.stage is not Stage.TRAIN and (one := self._models.get(other)) is not None and one.used:
                if mark.steps > model.decided:
                    model.undecided.add(mark.steps)
            elif in_row < 0:
                model.beside += 1
            else:
                model.row = (mark.steps, in_row + 1)
            changed[(mark.module, mark.training)] = model
        for (number, _), model in self._models.items():
            if model.undecided:
                model.decide(self._used_steps, number, self.watch.optimizer_steps)
        for used in (self._used_batches, self._used_steps):
            if len(used) > 256:
                for number in sorted(used)[:-128]:
                    del used[number]
        for key, model in changed.items():
            self._conclude(key, model, ended)

    def _settle_calls(self, died: list[ForwardGraph]) -> None:
        """Of a model that is trained, the calls whose graphs nobody used; they are followed once there was one."""
        watch = self.watch
        for mark in died:
            if not mark.training or mark.stage is not _TRAIN:
                continue
            model = self._models.get((mark.module, True))
            if model is None or model.told:
                continue
            if mark.outer is None and not mark.used:
                watch.doubted.add(mark.module)
            elif mark.module not in watch.doubted:
                continue
            least = max(least_of_device(watch.device_total_bytes), least_of_peak(watch.peak_bytes) or LEAST)
            line = self._calls.died(mark, model.name, least)
            if line is not None and not self._differentiates(model):
                self._tell_line(model, *line, training=True)

    def _asked(self, model: EvaluatedModel) -> Place:
        """Where the model is asked; notes whether its graph can leave the function that asks."""
        frame = asking_frame(sys._getframe(1), strict=False)
        if frame is None:
            return NOWHERE
        place = place_of(frame)
        judge = place_of(judging_frame(frame))
        model.judge = judge.file, judge.function
        if model.captive is None and keeps_graph(frame.f_code, frame.f_lineno):
            model.captive, self._captives = place, True
        return place

    def _kept_marks(self) -> list[ForwardGraph]:
        """Once for each model, its graphs of evaluation that somebody keeps: no backward will use them either."""
        watch = self.watch
        self._kept |= watch.carried
        if not watch.retained and not self._captives:
            return []
        captive = {number: model.captive for (number, training), model in self._models.items() if not training}
        kept: dict[int, list[ForwardGraph]] = {}
        for mark in list(watch.ledger.live.values()):
            if mark.training or mark.used or mark.module in self._kept or mark.batch >= watch.batch:
                continue
            if mark.module in watch.retained or (mark.asked is not None and mark.asked == captive.get(mark.module)):
                kept.setdefault(mark.module, []).append(mark)
        enough = [n for n, marks in kept.items() if n in watch.retained or self._is_evaluated(n, marks)]
        self._kept.update(enough)
        return [mark for number in enough for mark in kept[number]]

    def _is_evaluated(self, number: int, marks: list[ForwardGraph]) -> bool:
        """Whether graphs that one function keeps are evaluation's: of a model, or a part, trained in training mode."""
        return len({mark.batch for mark in marks}) >= MIN_UNUSED and self._is_trained_part(number)

    def _is_trained_part(self, number: int, *, since: int = -1) -> bool:
        """Whether a module is one, or belongs to one, that was trained in training mode, by a batch since one."""
        later = (m for (_, training), m in self._models.items() if training and m.used and m.last_used > since)
        wholes, seen = [module for model in later if (module := model.ref()) is not None], set[int]()
        return any(number == id(part) for whole in wholes for part in submodules_of(whole, seen))

    def _conclude(self, key: tuple[int, bool], model: EvaluatedModel, ended: bool) -> None:
        number, training = key
        if model.used or model.told >= 2:
            return
        other = self._models.get((number, not training))
        if model.told:
            frozen = model.frozen
        elif other is not None and other.used:
            since = other.last_used
            is_serving = self._serves(model, since=since)
            # Unless it is trained since as a part of another model, whose forwards alone are seen.
            frozen = is_serving and not (self._is_trained_part(number, since=since) and self._optimized(model))
        elif model.unused < MIN_UNUSED:
            return
        else:
            if model.beside and ended and model.optimized is None:
                return
            frozen = model.beside > 0 and not self._optimized(model)
        if training and not frozen:
            return  # a training forward whose loss was thrown away (a critic's step, a search): no rule
        if training and number in self.watch.chained:
            return  # its graphs died together, with the state that is told of
        enough = MIN_FROZEN if frozen else MIN_UNUSED
        if (model.beside if frozen else model.unused) < (enough if model.told == 0 else 16 * enough):
            return
        if self._differentiates(model):
            model.told = 2
            return
        if not frozen and model.told == 0:
            model.choose_line()
            others = model.beside_it(other for (_, mode), other in self._models.items() if not mode)
            if others and model.batches < MIN_UNUSED and not ended:
                self._waiting[key] = model  # what else the same function asks may be larger
                return
            group = [model, *others]
            asked = [model, *(other for other in others if other.batches >= MIN_UNUSED - 1)]
            model = max(asked, key=lambda one: (one.bytes or 0, -(one.place.line or 0)))  # of equals the first line
            for other in group:
                other.told = 0 if other is model else 2
            if model.asked != model.place:
                self._tell_method(model, group)
                return
        model.told, model.frozen = model.told + 1, frozen
        self._tell(
            model,
            self._line(model) if frozen else outermost_of(self._models, model.asked, [model]),
            model.unused,
            frozen=frozen,
        )

    def _serves(self, model: EvaluatedModel, *, since: int) -> bool:
        """Whether a model whose own training is over is asked in the steps of another: by then it is a teacher.

        Whatever became of its optimizer; evaluation comes between trainings of the same model, or in a row.
        """
        decided = model.unused - len(model.undecided)
        return model.first_batch is not None and model.first_batch > since and 4 * model.beside >= 3 * decided

    def _conclude_sites(self, model: EvaluatedModel, *, training: bool) -> None:
        """Of a model that serves a training step from the side, and is called twice, one call may be used alone."""
        if training or model.told or len(model.sites) < 2 or self.watch.stage is not Stage.TRAIN:
            return
        for site, (used, unused) in model.sites.items():
            if not used and unused >= MIN_FROZEN and not self._optimized(model):
                model.told = 2
                levels = (level for stack in model.stacks for level in stack)
                named = next((level.place for level in levels if level.place.where == site.where), site)
                self._tell(model, named, unused, frozen=True)
                return

    def _tell_line(self, model: EvaluatedModel, place: Place, line: CallLine, *, training: bool = False) -> None:
        """Tells of one line, where backwards run through other graphs of this model."""
        if any(other.told and place in (other.asked, other.place) for other in self._models.values()):
            return
        model.told = 2
        self.report(
            UnusedGraphs(
                batch=self.watch.batch,
                stage=Stage.TRAIN if training else self.watch.stage,
                place=place,
                module=model.name,
                count=line.unused,
                first_batch=line.first_batch,
                bytes=line.bytes,
                alive=line.alive,
                alone=True,
                training=training,
            )
        )

    def _tell_method(self, model: EvaluatedModel, group: list[EvaluatedModel]) -> None:
        """Tells of a method of a model that was evaluated by itself: its parts are one."""
        parts = [part for part in self._models.values() if part.asked == model.asked]
        for part in parts:
            part.told = 2
        model.name = model.place.function or model.name
        model.bytes = max((part.bytes or 0 for part in (*parts, *group)), default=0) or None
        self._tell(
            model, outermost_of(self._models, model.asked, parts), max(part.unused for part in parts), frozen=False
        )

    def _line(self, model: EvaluatedModel) -> Place:
        """The line of the calls of a frozen model that is to be changed."""
        ways = (s[i:] for s in model.stacks for i in range(len(s)) if s[i].place.where == model.place.where)
        stack = next(ways, None)
        if stack is None:
            return model.place
        trained = [other for other in self._models.values() if other.used]
        modules = [module for other in trained if (module := other.ref()) is not None]
        parts = {id(part) for module in modules for part in submodules_of(module, set())}
        return line_to_change(stack, [way for other in trained for way in other.stacks], parts) or model.place

    def _tell(self, model: EvaluatedModel, place: Place, count: int, *, frozen: bool) -> None:
        if frozen:
            count = max(count, model.join_parts(self._models, held_parameters(self.watch.optimizers)))
        else:
            told = (number for (number, training), one in self._models.items() if one.told and one.kept > training)
            self.watch.evaluated.update(told)
        self.report(
            UnusedGraphs(
                **self.watch.now,
                place=place,
                module=model.name,
                count=count,
                first_batch=model.first_batch,
                bytes=model.bytes,
                frozen=frozen,
                kept=model.kept and not frozen,
            )
        )

    def _differentiates(self, model: EvaluatedModel) -> bool:
        if model.differentiates is None:
            module = model.ref()
            model.differentiates = module is not None and self.watch.differentiates(module)
        return model.differentiates

    def _optimized(self, model: EvaluatedModel) -> bool:
        if model.optimized is None:
            module = model.ref()
            model.optimized = module is not None and is_optimized([module], self.watch.optimizers)
        return model.optimized

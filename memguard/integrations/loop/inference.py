"""Derives batch boundaries from forwards, backwards and optimizer steps.

The rules, in words. A forward in training mode opens a training batch. Further forwards belong to it until something
came between: after a backward, the next forward is another (micro-)batch; so it is after an optimizer step, which
closes the batch at once. A backward that builds a graph itself (``create_graph``) is to be followed by another: the
batch goes on. Where no backward can come any more, as the source has it, each forward is a batch, for nothing is
trained there: after a few forwards, or after many where the program had backwards before; in one that never had any,
whatever the source says, after a thousand. Forwards inside a step's closure belong to the step's batch, which the first
of them opens where none is open; a step that goes on and on is all of the training, and each evaluation of its closure
is a batch. A forward in eval mode is a batch of evaluation, unless it is another model's beside one in training (a
teacher, a frozen encoder): then it is part of that batch. So is one in training mode without gradients, between a
forward and its backward: a target of the loss. So is what a method of a model asks its parts for, word after word,
until what began the batch is called again. Where optimizers step and no forward is known for long (copies of the model
are trained, and it gets their gradients), each step is a batch; from the first on where no root can be called at all.
`guard.batches(loader)` says it exactly, and then nothing is inferred.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, final

from memguard.records.stats import Stage


class BatchListener(Protocol):
    """Who hears of the batches."""

    def enter(self, stage: Stage) -> None:
        """The loop is in this stage from now on."""

    def begin(self, index: int | None) -> None:
        """A batch begins."""

    def finish(self) -> None:
        """The open batch is over."""

    def stepped(self) -> None:
        """An optimizer has changed weights, and its step goes on."""

    def crowded(self) -> None:
        """The open batch had several forwards without a backward: it may be an evaluation."""


CROWDED = 3
"""Forwards in one training batch, after its first, that make it worth a look."""
LONG = 64
"""The same where batches had backwards, and this one has more than twice the forwards of any of them."""
MOST_BEFORE_BACKWARD = 1024
"""Forwards of the first batch without a backward, after which none is waited for: more than the steps of an episode."""
MOST_DERIVATIVES = 64
"""Forwards of one batch that are differentiated with a graph, before one counts as a backward: it may never come."""
MOST_OF_PARTS = 1024
"""Forwards of models' parts in one batch of evaluation; then what began it was something else."""
MOST_TOGETHER = 32
"""Different models that share a batch of values; more are candidates of a search."""
MOST_BARE = 8
"""Steps in a row without a forward, as several optimizers make them after one batch."""
MOST_EVALUATIONS = 32
"""Evaluations of a closure in one step, after which each is a batch. LBFGS makes 25 of itself, or as many as it is
told: then one step may be all of the training."""
PLAIN_BATCHES = 64
"""Training batches of one forward and one step in a row, after which a loop counts as one of such batches only."""


_EVALUATIONS = (Stage.VALIDATION, Stage.PREDICT)
_TRAIN = Stage.TRAIN  # asked in each batch; an attribute of an Enum is looked up through its metaclass


def _yes() -> bool:
    return True


def _no() -> bool:
    return False


@final
class BatchInference:
    """Turns the bare events of a plain loop into stages and batches.

    Args:
        listener: Told of stages and batches.
        steps: Counts the optimizer steps under way; None where every one that begins is known to end.
        may_train: Whether the running code can come to a backward, as far as can be told; asked once.
    """

    def __init__(
        self,
        listener: BatchListener,
        steps: Callable[[], int] | None = None,
        may_train: Callable[[], bool] = _yes,
    ) -> None:
        self._listener, self._steps, self._may_train = listener, steps, may_train
        self._stage: Stage | None = None
        self._open = False
        self._backward = False
        self._stepping = 0
        self._trained: set[int] = set()
        self._leaders: set[int] | None = None
        self._plain = self._further = self._derivatives = 0
        self._of_parts = self._bare = self._evaluations = 0
        self._of_step = self._by_evaluation = False
        """Whether a forward of the step under way opened the open batch, and whether each evaluation in one does."""
        self._evaluated: list[int] = []
        self._waiting = 0
        """Forwards of the open training batch that no backward came to, less those for values between them."""
        self._served = False
        """Whether an ordinary backward, or a step, ended a batch so far."""
        self._longest = 0
        """Further forwards that a batch had before its backward, at most."""
        self.trains_nothing = False
        """Whether no forward of so many was followed by a backward or a step."""
        self.hears_forwards = True
        """Whether any root can be called; no forward is told of a ModuleList."""
        self.explicit = 0
        """Open `guard.batches` loops: while there is one, nothing is inferred."""

    def forward(
        self,
        model: int,
        *,
        training: bool,
        part: bool = False,
        values: bool = False,
        evaluates: Callable[[], bool] = _yes,
        shares: Callable[[], bool] = _no,
    ) -> None:
        """An outermost forward of a root model begins.

        Args:
            model: The root's identity.
            training: Whether it is in training mode with gradients enabled.
            part: Whether it is a part of another root, and asked by itself.
            values: Whether it is in training mode without gradients: a step of training asks it for values.
            evaluates: Whether the program calls what it does then an evaluation; else it is a roll-out.
            shares: Whether its inputs are those, or the answers, of what was called in the open batch.
        """
        self._bare = 0
        if training:
            self._trained.add(model)
            if not (self._open or self._stepping or self.explicit) and self._stage is _TRAIN:
                self.begin(None)  # as in most batches; it is what comes of all the questions below
                self._waiting = 1
                return
        if self._stepping and self._recount():
            if not self.explicit:
                self._in_step(training=training)
            return
        if not training and (
            self._is_teacher(model)
            or (values and self._is_target())
            or self._is_of_batch(model, part=part, values=values, shares=shares)
        ):
            return
        if training:
            self._leaders = None
        stage = _TRAIN if training else self._evaluation(values=values, evaluates=evaluates)
        if self.explicit:
            self._change(stage)
            self._waiting += training
            return
        alone = self._backward or self.trains_nothing or not training
        if self._open and (stage is not self._stage or alone):
            if self._stage is _TRAIN:
                self._plain = 0  # it ended without a step: a micro-batch
            self.end()
        self._change(stage)
        if not self._open:
            self._evaluated, self._of_parts = [model], 0
            self.begin(None)
        else:
            self._plain = 0
            self._further += 1
            if self._further == CROWDED:
                self._listener.crowded()
            least = max(LONG, 2 * self._longest) if self._served else CROWDED
            is_endless = self._further >= MOST_BEFORE_BACKWARD and not self._served
            if is_endless or (self._further == least and not self._may_train()):
                self.trains_nothing = True
        if training:
            self._waiting += 1

    @property
    def needs_backward(self) -> bool:
        """Whether backwards must be told: not where the last batches were one forward and one step each.

        The first forward without a step then begins to ask again; at worst it is taken into the batch before it.
        """
        return (self._plain < PLAIN_BATCHES or self._stepping > 0) and not self.explicit

    @property
    def is_stepping(self) -> bool:
        """Whether an optimizer's step is under way, as far as one said so."""
        return self._stepping > 0

    def state(self) -> object:
        """What is known of the loop now, and decides what the next events mean: alike wherever the loop repeats itself.

        Whoever takes such events over gives it back with `resume`.
        """
        plain = self._plain if self._plain < PLAIN_BATCHES else PLAIN_BATCHES
        leaders = frozenset(self._leaders) if self._leaders is not None else None
        counts = self._further, self._derivatives, self._of_parts, self._bare, self._evaluations, self._waiting
        flags = self._open, self._backward, self._of_step, self._by_evaluation, self._served, self.trains_nothing
        return self._stage, self._stepping, plain, leaders, tuple(self._evaluated), counts, flags

    def resume(self, state: Any) -> None:
        """It is again as it was at `state`, after events like those that came then."""
        self._stage, self._stepping, self._plain, leaders, evaluated, counts, flags = state
        self._leaders, self._evaluated = set(leaders) if leaders is not None else None, list(evaluated)
        self._further, self._derivatives, self._of_parts, self._bare, self._evaluations, self._waiting = counts
        self._open, self._backward, self._of_step, self._by_evaluation, self._served, self.trains_nothing = flags

    def _in_step(self, *, training: bool) -> None:
        """A forward inside of a step, which evaluates its closure.

        Where nothing was trained lately, one in eval mode is no teacher's: an image is trained against a fixed network.
        """
        if self._open and self._backward:
            self._evaluated_anew()
            return
        if training:
            begins = not self._open or self._stage is not _TRAIN
        else:
            begins = not self._of_step and self._stage is not _TRAIN
        if begins:
            self.end()
            self._begin_in(_TRAIN if training else Stage.VALIDATION)
            self._of_step = True

    def _evaluated_anew(self) -> None:
        """The closure of the step under way was evaluated, and is once more."""
        self._backward = False
        self._evaluations += 1
        if self._evaluations >= MOST_EVALUATIONS or self._by_evaluation:
            self._by_evaluation, self._plain = True, 0
            self._listener.stepped()
            self.end()
            self.begin(None)

    def _recount(self) -> int:
        """How many steps are under way; one that failed ended without a word."""
        if self._steps is not None:
            self._stepping = self._steps()
        return self._stepping

    def _is_teacher(self, model: int) -> bool:
        """Whether a forward in eval mode serves a training batch: another model's, before or after the student's.

        One that is called again before any student came is being evaluated.
        """
        if self._stage is not Stage.TRAIN or model in self._trained:
            return False
        if self._open and self._leaders is None:
            return True
        if self.explicit:
            return self._open
        if not self._open:
            self.begin(None)
            self._leaders = set()
        leaders = self._leaders
        if leaders is None or model in leaders:
            return False
        leaders.add(model)
        return True

    def _is_target(self) -> bool:
        """Whether a model in training mode is asked for values between a forward and the backward that is to come.

        One such for each forward: in a longer row something is evaluated, unless the loop says what a batch is. Where
        backwards are not told, they are from the next batch on.
        """
        if not (self._open and self._stage is Stage.TRAIN and self._waiting):
            return False
        if self.explicit:
            return True
        listens, self._plain = self.needs_backward, 0
        self._waiting -= listens
        return listens

    def _evaluation(self, *, values: bool, evaluates: Callable[[], bool]) -> Stage:
        """The stage of a forward that no training batch asks for: of a model in training mode it is a roll-out's."""
        if not values or self.explicit:
            return Stage.VALIDATION
        if self._stage in _EVALUATIONS:
            return self._stage
        return Stage.VALIDATION if evaluates() else Stage.PREDICT

    def _is_of_batch(self, model: int, *, part: bool, values: bool, shares: Callable[[], bool]) -> bool:
        """Whether a model that is evaluated belongs to the open batch, which another one began.

        The parts of a model may be asked again and again, as a decoder is word by word. Of what a step of training asks
        for values each that was not called in the batch yet belongs to it: embedding, layers and head of a policy. So
        does in evaluation another model that is asked of the same, or of what the first answered.
        """
        if not self._open or self._stage not in _EVALUATIONS or self.explicit or model == self._evaluated[0]:
            return False
        if part:
            self._of_parts += 1
            return self._of_parts <= MOST_OF_PARTS
        if model in self._evaluated or len(self._evaluated) >= MOST_TOGETHER or not (values or shares()):
            return False
        self._evaluated.append(model)
        return True

    def backward(self) -> None:
        """A backward entered the graph of a training forward."""
        self._backward = self._served = True
        self._longest = max(self._longest, self._further)
        self.trains_nothing, self._waiting = False, 0

    def derivative(self) -> None:
        """Likewise one that builds a graph: forces, a penalty, an inner step of MAML are a part of their batch."""
        if self._served and self._derivatives < MOST_DERIVATIVES:
            self._derivatives += 1
            self._further = 0
        else:
            self._backward, self._waiting = True, 0

    def bare_backward(self) -> None:
        """A backward begins in a program without modules: it is all that shows a training batch."""
        if self._stepping:
            self._recount()
        self._bare = 0
        if self.explicit:
            return
        if self._stepping and self._open:
            if self._backward:
                self._evaluated_anew()
        else:
            self.end()
            self._begin_in(Stage.TRAIN)
        self._backward = self._stepping > 0

    def step_start(self) -> None:
        """An optimizer begins its step."""
        self._stepping += 1
        if self._stepping > 1:
            self._recount()
        if self._stepping == 1:
            self._of_step, self._evaluations = False, 0

    def step_end(self, alone: Callable[[], bool] = _yes) -> None:
        """An optimizer has made its step.

        Args:
            alone: Whether nobody else watches the process, who may know what this step is a part of.
        """
        if self._stepping > 1:
            self._recount()  # with this one, which is still under way
        if self._stepping:
            self._stepping -= 1
        if self._stepping or self.explicit:
            return
        if not self._open and alone():
            self._bare += 1
            if self._bare > MOST_BARE or not self.hears_forwards:
                self._begin_in(Stage.TRAIN)
        if self._open and (self._stage is _TRAIN or self._of_step):
            self._served, self.trains_nothing = True, False
            self._plain += 1
            self.end()

    def begin(self, index: int | None) -> None:
        """A batch begins, by inference or said by the loop."""
        self._open, self._backward, self._leaders, self._further, self._derivatives = True, False, None, 0, 0
        self._waiting = 0
        self._listener.begin(index)

    def hand_out(self, index: int, *, training: bool | None) -> None:
        """A loop that says its batches hands one out.

        Args:
            index: Its number in the loop.
            training: Whether a guarded model is in training mode with gradients enabled, so that the batch is in the
                right stage before its first forward; None where there is no model to ask.
        """
        self.end()
        stage = self._stage if training is None else Stage.TRAIN if training else Stage.VALIDATION
        if stage is not None:
            self._change(stage)
        self.begin(index)

    def end(self) -> None:
        """The open batch, if any, is over."""
        if self._open:
            self._open = False
            self._listener.finish()

    def _begin_in(self, stage: Stage) -> None:
        self._change(stage)
        self.begin(None)

    def _change(self, stage: Stage) -> None:
        if stage is not self._stage:
            self._stage = stage
            self._listener.enter(stage)

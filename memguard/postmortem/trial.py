"""Whether another batch size would have fitted: the run's allocations, scaled and replayed.

Where a finished batch shows a whole step, its allocations are replayed. Where the first batch failed, its own are, with
the gradients and the optimizer's state that would have come; what its forward had not reached is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from memguard.allocator import CachingAllocator, OutOfMemory
from memguard.postmortem.estimate import room_bytes
from memguard.postmortem.inputs import batch_shape, shape_of
from memguard.postmortem.scene import Event, Scene, Steps
from memguard.records.stats import Stage

Shape = tuple[int, ...]
FEW = 4
"""Finished batches that are replayed."""
LEAST_ROWS = 4
"""Lengths below this divide too much by chance."""
SPARE = 0.06
"""Taken off the largest that fits: other data, another order."""


GUESSED_SPARE = 0.1
"""The same where no whole step was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The largest input that fits."""

    length: int
    """Of the dimension that was changed."""
    replayed: bool
    """Whether all of its step was replayed, after batches that fitted there as well; else a part of it is a guess."""


def largest_that_fits(scene: Scene, axis: int = 0) -> Tried | None:
    """The largest length of a dimension of the failing input with which its step fits; None without evidence.

    Args:
        scene: What was seen.
        axis: The dimension: 0 is the batch.
    """
    shape, steps, room = batch_shape(scene), scene.steps, room_bytes(scene.request)
    if steps is None or shape is None or room is None or axis >= len(shape) or shape[axis] < 2:
        return None
    trial = _Whole.of(scene, shape, steps) or _Begun.of(scene, shape, steps)

    def fits(length: int) -> bool:
        return trial.fits((*shape[:axis], length, *shape[axis + 1 :]), room)

    low, high = 0, shape[axis]
    while high - low > max(low // 64, 1):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    if not low:
        return None
    replayed = trial.repeats(room)
    spare = SPARE if replayed else GUESSED_SPARE
    return Tried(length=low - math.ceil(low * spare) if low > LEAST_ROWS else low, replayed=replayed)


def fits_as_it_is(scene: Scene) -> bool | None:
    """Whether the failing batch's step fits on a device where nothing is in pieces; None without evidence."""
    shape, steps, room = batch_shape(scene), scene.steps, room_bytes(scene.request)
    if steps is None or shape is None or room is None:
        return None
    trial = _Whole.of(scene, shape, steps)
    return trial.leaves_room(shape, room) if trial is not None else None


@final
class Scaling:
    """How a tensor's size follows the input's shape.

    A dimension follows the input's where it has the same length, or the first one a multiple of it (all samples' rows).
    The shapes of weights, which gradients and optimizer states have too, follow nothing; nor does a length that weights
    have, except in front.

    Args:
        source: The input's shape in the batch that was recorded.
        fixed: Shapes of the weights.
    """

    def __init__(self, source: Shape, fixed: frozenset[Shape]) -> None:
        self.source, self._fixed = source, fixed
        self._widths = {length for shape in fixed for length in shape}

    def bytes_of(self, event: Event, target: Shape) -> int:
        """What the block takes for an input of another shape."""
        if event.shape in self._fixed:
            return event.nbytes
        nbytes = float(event.nbytes)
        for axis, (old, new) in enumerate(zip(self.source, target, strict=False)):
            if old != new:
                nbytes *= (new / old) ** self._power(event.shape, old, axis)
        return max(round(nbytes), 1)

    def _power(self, shape: Shape, length: int, axis: int) -> int:
        """How often an input's length is in a shape."""
        same = [at for at, each in enumerate(shape) if each == length and (at == axis or length not in self._widths)]
        if same or not shape:
            return min(len(same), 2)
        return int(length >= LEAST_ROWS and shape[0] % length == 0)

    def follows(self, event: Event) -> bool:
        """Whether the block's first dimension is the batch."""
        return bool(event.shape) and event.shape[0] == self.source[0] and event.shape not in self._fixed


@dataclass(slots=True)
class _Player:
    """Blocks of a simulated device, by the address that they had when recorded."""

    allocator: CachingAllocator
    held: dict[int, int] = field(default_factory=dict)
    left: dict[tuple[int, Shape], list[int]] = field(default_factory=dict)
    """Recorded addresses by size and shape: a batch that comes again gives back what the one before it left."""

    def take(self, event: Event, nbytes: int) -> None:
        self.held[event.block] = self.allocator.malloc(nbytes)
        self.left.setdefault((event.nbytes, event.shape), []).append(event.block)

    def free(self, event: Event) -> None:
        block = event.block
        known = self.left.get((event.nbytes, event.shape), [])
        if block not in known:
            block = known[0] if known else -1
        if block in self.held:
            known.remove(block)
            self.allocator.free(self.held.pop(block))


@final
class _Whole:
    """Finished batches, replayed in a row: then the newest of them twice, and the failing one as far as it came."""

    def __init__(
        self, steps: Steps, batches: Sequence[tuple[Event, ...]], sources: list[Shape], shape: Shape, scene: Scene
    ) -> None:
        self._batches, self._conf = batches, scene.conf
        self._failing = (*steps.before, *steps.events, *([steps.wanted] if steps.wanted is not None else []))
        self._fixed = frozenset(tuple(each.shape) for each in scene.objects.trainable)
        self._scalings = [Scaling(source, self._fixed) for source in sources]
        self._own = Scaling(shape, self._fixed)
        self._stay = {event.block for event in steps.live}
        self._before = _before(steps, [*batches, steps.before, steps.events])
        self._repeats: dict[int, bool] = {}

    @classmethod
    def of(cls, scene: Scene, shape: Shape, steps: Steps) -> _Whole | None:
        """None where no finished batch stands for the failing one."""
        records = [record for record in scene.records if record.stage is not Stage.CHECKPOINT][-FEW:]
        records = records[-len(steps.batches) :] if steps.batches else []
        if not records or any(record.stage is not scene.stage for record in records):
            return None
        if scene.objects.optimizers and scene.stage is Stage.TRAIN and records[-1].optimizer_steps < 1:
            return None
        sources = [shape_of(scene, record) for record in records]
        known = [source for source in sources if source is not None and len(source) == len(shape)]
        if len(known) < len(sources):
            return None
        return cls(steps, steps.batches[-len(records) :], known, shape, scene)

    def repeats(self, room: int) -> bool:
        """Whether the finished batches fit as they were: blocks may lie otherwise here than they did there."""
        if room not in self._repeats:
            self._repeats[room] = self._fits(self._scalings[-1].source, room, grows=True)
        return self._repeats[room]

    def leaves_room(self, target: Shape, room: int) -> bool:
        """Whether batches like the newest fit at another size."""
        return all(self._fits(target, room, grows=grows) for grows in self._ways(room))

    def fits(self, target: Shape, room: int) -> bool:
        ways = self._ways(room)
        return self.leaves_room(target, room) and all(self._passes(target, room, grows=grows) for grows in ways)

    def _ways(self, room: int) -> tuple[bool, ...]:
        return (True, False) if self.repeats(room) else (False,)

    def _fits(self, target: Shape, room: int, *, grows: bool) -> bool:
        """Whether further batches like the newest fit, all of them of that size or after those that there were."""
        lasting = {event.block for event in self._batches[-1] if not event.frees and event.block in self._stay}
        try:
            player = self._played(target, room, grows=grows)
            for _ in range(2):
                _play(player, self._batches[-1], self._scalings[-1], target, frozenset(lasting))
        except OutOfMemory:  # the answer
            return False
        return True

    def _passes(self, target: Shape, room: int, *, grows: bool) -> bool:
        """Whether the failing batch, which need not be like the newest (a GAN's steps), gets beyond where it failed."""
        try:
            _play(self._played(target, room, grows=grows), self._failing, self._own, target, frozenset())
        except OutOfMemory:  # the answer
            return False
        return True

    def _played(self, target: Shape, room: int, *, grows: bool) -> _Player:
        """A device after the finished batches."""
        player = _Player(CachingAllocator(room, self._conf))
        for event in self._before:
            player.take(event, event.nbytes)
        for events, scaling in zip(self._batches, self._scalings, strict=True):
            _play(player, events, scaling, scaling.source if grows else target, frozenset())
        return player


@final
class _Begun:
    """The failing batch itself, with what would have come after it."""

    def __init__(self, scene: Scene, shape: Shape, steps: Steps) -> None:
        objects = scene.objects
        fixed = frozenset(tuple(each.shape) for each in objects.trainable)
        self._conf, self._steps, self._scaling = scene.conf, steps, Scaling(shape, fixed)
        self._before = _before(steps, [steps.events])
        self._trains = scene.stage is not Stage.VALIDATION and objects.grad_enabled and bool(objects.trainable)
        self._trains = self._trains and objects.training is not False and objects.phase in ("forward", "backward", None)
        self._in_backward = objects.phase == "backward"
        self._share = 1.0 if self._in_backward or not self._trains else max(objects.forward_share or 0.0, 0.1)
        self._gradients = [each.nbytes for each in objects.trainable if not each.has_gradient]
        self._state = [
            max((each.full_state_bytes or 0) - each.state_bytes, 0) for each in objects.optimizers if self._trains
        ]
        self._temporary = max((each.temporary_bytes for each in objects.optimizers), default=0)

    @classmethod
    def of(cls, scene: Scene, shape: Shape, steps: Steps) -> _Begun:
        """For a batch of this shape."""
        return cls(scene, shape, steps)

    def repeats(self, room: int) -> bool:
        """No finished batch shows whether a replay is like the run."""
        return False

    def fits(self, target: Shape, room: int) -> bool:
        player = _Player(CachingAllocator(room, self._conf))
        malloc, scaling = player.allocator.malloc, self._scaling
        try:
            for event in self._before:
                player.take(event, scaling.bytes_of(event, target) if scaling.follows(event) else event.nbytes)
            base = player.allocator.allocated_bytes
            if self._trains:  # as from the second step on
                for nbytes in [*self._gradients, *_pieces(sum(self._state), self._gradients)]:
                    malloc(nbytes)
                for event in filter(scaling.follows, self._before):  # those of the batch before, until new ones come
                    malloc(scaling.bytes_of(event, target))
            steady = player.allocator.allocated_bytes - base
            _play(player, self._steps.events, scaling, target, frozenset())
            wanted = self._steps.wanted
            largest = max(
                [scaling.bytes_of(event, target) for event in self._steps.events if scaling.follows(event)], default=0
            )
            if wanted is not None:
                nbytes = scaling.bytes_of(wanted, target)
                largest = max(largest, nbytes if wanted.shape not in scaling._fixed else 0)
                malloc(nbytes)
            inside = player.allocator.allocated_bytes - base - steady
            rest = int(max(inside, 0) * (1 / self._share - 1))
            for nbytes in _pieces(rest, [max(largest, 1)]):
                malloc(nbytes)
            for _ in range(2 if self._in_backward else 3):
                if largest:
                    malloc(largest)
        except OutOfMemory:  # the answer
            return False
        return base + steady + self._temporary <= room


def _before(steps: Steps, batches: Sequence[Sequence[Event]]) -> list[Event]:
    """The blocks that were in use before some batches began."""
    live = {event.block: event for event in steps.live}
    for events in reversed(batches):
        for event in reversed(events):
            if event.frees:
                live[event.block] = event._replace(frees=False)
            else:
                live.pop(event.block, None)
    return sorted(live.values())


def _play(player: _Player, events: Sequence[Event], scaling: Scaling, target: Shape, there: frozenset[int]) -> None:
    """Gives a batch's events to the allocator; what is there already is not taken again."""
    for event in events:
        if event.frees:
            player.free(event)
        elif event.block not in there:
            player.take(event, scaling.bytes_of(event, target))


def _pieces(nbytes: int, like: Sequence[int]) -> list[int]:
    """Blocks of some sizes, again and again, until they come to so many bytes."""
    found: list[int] = []
    sizes = [size for size in like if size > 0]
    while nbytes > 0 and sizes:
        size = min(sizes[len(found) % len(sizes)], nbytes)
        found.append(size)
        nbytes -= size
    return found

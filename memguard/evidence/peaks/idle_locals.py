"""Locals that hold large tensors at the peak though nothing reads them again, from the allocation history.

The history tells which blocks are alive at the peak, which lines made them and which line runs; the source tells which
variable a block went into, and whether it is read again. What the peak would be without them is worked out.

Long because each block is followed through one replay of the events.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from memguard.heap.frames import is_script, is_user_file
from memguard.records.facts import Place
from memguard.source.function_body import FunctionBody, parts_made, variables_set
from memguard.source.model import Sources

if TYPE_CHECKING:
    from memguard.allocator.snapshot import Stack
    from memguard.allocator.timeline import AllocationTimeline, Block, Peak

ROUNDS = 6
"""Peaks that are looked at: without the idle ones of the highest, another is."""
MOST_BLOCKS = 64
"""Blocks alive at a peak that are looked at, the largest first."""
MOST_TURNS = 128
MOST_EVENTS = 2_000_000
"""Events that are gone through, some more than once, before the search is given up: about a second."""


@final
@dataclass(frozen=True, slots=True)
class IdleLocal:
    """A variable that nothing reads from some point before the peak on."""

    place: Place
    """Where it is made."""
    name: str
    bytes: int
    gain_bytes: int
    """By so much the peak would be lower without all that are found."""
    line: int
    """The line of the function that runs at the peak."""


@final
@dataclass(slots=True)
class _Found:
    block: Block
    place: Place
    name: str
    line: int
    """The one that runs at the peak."""

    @property
    def variable(self) -> tuple[str | None, int | None, str]:
        return self.place.file, self.place.line, self.name


def idle_at_peak(timeline: AllocationTimeline, *, min_bytes: int) -> list[IdleLocal]:
    """Variables that are idle at the peak of some batches, those with the most bytes first.

    Args:
        timeline: The batches.
        min_bytes: Smallest block that counts.
    """
    try:
        return _search(_Look(timeline, max(min_bytes, 1)), min_bytes)
    except _TooMuch:
        return []


def _search(look: _Look, min_bytes: int) -> list[IdleLocal]:
    found: list[_Found] = []
    first, now = look.peak(look.idle_from)
    if not first:
        return []  # nothing was allocated
    for _ in range(ROUNDS):
        new = look.idle_at(now)
        if not new:
            break
        found += new
        _, now = look.peak(look.idle_from)
    highest, _ = look.peak(look.idle_from)
    largest: dict[tuple[str | None, int | None, str], _Found] = {}
    for each in found:
        if each.variable not in largest or largest[each.variable].block.size < each.block.size:
            largest[each.variable] = each
    answer = []
    for variable, each in largest.items():
        alone, _ = look.peak({o.block: look.idle_from[o.block] for o in found if o.variable == variable})
        if first - alone >= min_bytes:
            answer.append(IdleLocal(each.place, each.name, each.block.size, first - highest, each.line))
    return sorted(answer, key=lambda idle: -idle.bytes)


class _TooMuch(Exception):
    """The search went through too many events."""


@final
class _Look:
    def __init__(self, timeline: AllocationTimeline, min_bytes: int) -> None:
        self._timeline, self._least = timeline, min_bytes
        self.idle_from: dict[Block, int] = {}
        """The event from which on nothing reads the variable of an idle block."""
        self._left = MOST_EVENTS
        self._stacks: dict[int, Stack] = {}
        self._sources = Sources()
        self._bodies: dict[tuple[str, int], FunctionBody | None] = {}

    def peak(self, without: dict[Block, int]) -> Peak:
        """The peak without some idle blocks."""
        self._spend(len(self._timeline))
        return self._timeline.peak(without)

    def idle_at(self, now: int) -> list[_Found]:
        """Marks and names what is idle at an event."""
        stack, levels = self._stack(now), self._timeline.levels(self.idle_from)
        alive = [b for b in self._timeline.alive_at(now) if b.size >= self._least and b.made < now]
        alive = [block for block in alive if block.freed is not None and block not in self.idle_from]
        alive.sort(key=lambda block: -block.size)
        found = []
        for block in alive[:MOST_BLOCKS]:
            idle = self._idle(block, now, stack)
            if idle is not None:
                found += [idle, *self._in_other_turns(block, levels)]
        return found

    def _in_other_turns(self, block: Block, levels: list[int]) -> Iterator[_Found]:
        """The same variable in other batches, each at the peak that it saw."""
        made = self._stack(block.made)
        others = [b for b in self._timeline.blocks if b.size >= self._least and b not in self.idle_from]
        for other in [other for other in others if self._stack(other.made) == made][:MOST_TURNS]:
            if other.freed is not None:
                seen = self._timeline.made_between(other.made, other.freed - 1)
                at = max((each.made for each in seen), key=levels.__getitem__)
                idle = self._idle(other, at, self._stack(at))
                if idle is not None:
                    yield idle

    def _idle(self, block: Block, now: int, stack: Stack) -> _Found | None:
        made = self._stack(block.made)
        depth = _shared(made, stack)
        if depth is None:
            return None
        (file, made_on, _), (_, line, _) = made[depth], stack[depth]
        body = self._body(file, line)
        if body is None or body is not self._body(file, made_on):
            return None
        making, running = body.at(made_on), body.at(line)
        if making is None or running is None or making is running or making.lineno >= running.lineno:
            return None
        span = self._span(block.made, now, stack, depth, body)
        if span is None:
            return None
        begun, over = span
        if block.freed is None or block.freed > over or body.goes_back(line):
            return None  # something else holds it as well, or the graph may
        names = variables_set(making)
        name = self._which(names, making, block, depth) if names else None
        if name is None or body.is_set_between(name, making, running):
            return None

        def makes(statement: Any) -> bool:
            return self._outlive(statement, body, begun, now, depth)

        sharing = body.sharing(name, making, running, makes)
        if body.needs(running, sharing) or body.reads_after(sharing, running):
            return None
        self.idle_from[block] = self._last_need(block.made, now, body, sharing, depth, making)
        place = Place(file=file, line=making.lineno, function=body.path, holder=name, source=body.text(making))
        return _Found(block, place, name, line)

    def _which(self, names: list[str], making: Any, block: Block, depth: int) -> str | None:
        """Into which of a statement's variables a block went: the function that was called returns it at that place.

        Where one statement makes and returns all, they are made in their order. What else a statement with one variable
        leaves is the graph's, or an object's: the variable's own is made last.
        """
        made = self._stack(block.made)
        if len(names) == 1:
            return names[0] if self._left_by(making, block.made, depth)[-1:] == [block] else None
        for inner, (file, line, _) in enumerate(made[depth + 1 :], depth + 1):
            if not is_user_file(file):
                continue
            body = self._body(file, line)
            statement = body.at(line) if body is not None else None
            if body is None or statement is None:
                return None
            parts = parts_made(statement)
            if parts:
                made_there = self._left_by(statement, block.made, inner)
                index = made_there.index(block) if block in made_there and len(made_there) == parts else None
                return names[index] if index is not None and parts == len(names) else None
            set_there = variables_set(statement)
            if set_there is None or len(set_there) != 1:
                return None
            index = body.returned_at(set_there[0])
            return names[index] if index is not None and index < len(names) else None
        return None

    def _left_by(self, statement: Any, made: int, depth: int) -> list[Block]:
        """The blocks that one run of a statement made and that outlived it, in their order.

        Args:
            statement: What runs.
            made: An event of that run.
            depth: Where its function lies on the stack.
        """
        stack = self._stack(made)
        lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)

        def runs(number: int) -> bool:
            there = self._stack(number)
            return not there or (_within(there, stack, depth) and there[depth][1] in lines)

        first = last = made
        for number in self._spending(self._timeline.backwards(made)):
            if not runs(number):
                break
            first = number
        over = len(self._timeline)
        for number in self._spending(self._timeline.onwards(made)):
            if not runs(number):
                over = number
                break
            last = number
        mine = self._timeline.made_between(first, last)
        return [block for block in mine if block.freed is None or block.freed > over]

    def _span(self, made: int, now: int, stack: Stack, depth: int, body: FunctionBody) -> tuple[int, int] | None:
        """Between which events the function at a depth of the stack runs; None if it is left between the two."""
        begun, over, last = made, len(self._timeline), 0
        for number in self._spending(self._timeline.backwards(made)):
            if there := self._stack(number):
                if not _within(there, stack, depth):
                    break
                begun = number
        for number in self._spending(self._timeline.onwards(made)):
            if not (there := self._stack(number)):
                continue
            left = not _within(there, stack, depth) or (
                there[depth][1] < last and not body.loops(there[depth][1], last)
            )
            if left and number > now:
                over = number
                break
            if left:
                return None
            last = there[depth][1]
        return begun, over

    def _outlive(self, statement: Any, body: FunctionBody, begun: int, now: int, depth: int) -> bool:
        """Whether a run of a statement made something that was there after it."""
        lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        mine = [
            block
            for block in self._timeline.made_between(begun, now - 1)
            if len(there := self._stack(block.made)) > depth and there[depth].line in lines
        ]
        last = max((block.made for block in mine), default=now)
        over = next(self._timeline.onwards(last + 1), now)
        return any(block.freed is None or block.freed > min(over, now) for block in mine)

    def _last_need(self, made: int, now: int, body: FunctionBody, names: set[str], depth: int, making: Any) -> int:
        """The event after which nothing reads the variables, up to the one that is looked at."""
        for number in self._spending(self._timeline.backwards(now - 1)):
            if number <= made:
                break
            there = self._stack(number)
            if len(there) <= depth:
                return number + 1  # a backward in a thread of its own
            statement = body.at(there[depth][1])
            if statement is None or statement is making or body.needs(statement, names):
                return number + 1
        return made + 1

    def _spend(self, events: int) -> None:
        self._left -= events
        if self._left < 0:
            raise _TooMuch

    def _spending(self, events: Iterator[int]) -> Iterator[int]:
        for event in events:
            self._spend(1)
            yield event

    def _stack(self, event: int) -> Stack:
        """The frames of an event, outermost first."""
        if event not in self._stacks:
            self._spend(10)
            self._stacks[event] = self._timeline.stack(event)[::-1]
        return self._stacks[event]

    def _body(self, file: str, line: int) -> FunctionBody | None:
        """The innermost function around a line; where there is none, the script if it is the program itself."""
        if not is_user_file(file):
            return None
        source = self._sources.get(file)
        if source is None:
            return None
        function = source.scope_at(line)
        if function is source.module and not is_script(file):
            return None
        key = (file, function.first_line)
        if key not in self._bodies:
            self._bodies[key] = FunctionBody(source, function)
        return self._bodies[key]


def _shared(made: Stack, now: Stack) -> int | None:
    """The depth of the innermost function that runs at both events without having been left, as far as lines tell."""
    for depth, (one, other) in enumerate(zip(made, now, strict=False)):
        if one == other:
            continue
        return depth if one[0] == other[0] and one[2] == other[2] else None
    return None


def _within(there: Stack, stack: Stack, depth: int) -> bool:
    return (
        len(there) > depth
        and there[:depth] == stack[:depth]
        and (there[depth][0], there[depth][2]) == (stack[depth][0], stack[depth][2])
    )

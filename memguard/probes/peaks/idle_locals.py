"""Local variables that hold large tensors at the peak though nothing reads them any more: read from the history.

The history tells which blocks are alive at the peak, which lines made them and which line runs; the source tells which
variable a block went into, and whether it is read again. What the peak would be without them is worked out.

Long because each block is followed through one replay of the events.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from memguard.clocks import thread_time
from memguard.facts import Place
from memguard.heap.frames import is_script, is_user_file
from memguard.source.function_body import FunctionBody, parts_made, variables_set
from memguard.source.model import Sources

ROUNDS = 6
"""Peaks that are looked at: without the idle ones of the highest, another is."""
MOST_BLOCKS = 64
"""Blocks alive at a peak that are looked at, the largest first."""
MOST_TURNS = 128
MOST_SECONDS = 1.0
"""Of this thread's processor time, after which nothing is concluded: a history has up to 100,000 events."""

Event = dict[str, Any]
Frame = tuple[str, int, str]
"""File, line, function."""


@final
@dataclass(frozen=True, slots=True)
class Idle:
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
class _Block:
    """A block that was made in the history."""

    size: int
    made: int
    """Numbers of events."""
    freed: int | None = None
    idle_from: int | None = None


@final
@dataclass(slots=True)
class _Found:
    block: _Block
    place: Place
    name: str
    line: int
    """The one that runs at the peak."""

    @property
    def variable(self) -> tuple[str | None, int | None, str]:
        return self.place.file, self.place.line, self.name


def idle_at_peak(trace: Sequence[Event], *, min_bytes: int) -> list[Idle]:
    """Variables that are idle at the peak of a history, those with the most bytes first.

    Args:
        trace: Allocator events in PyTorch's snapshot format, oldest first.
        min_bytes: Smallest block that counts.
    """
    try:
        return _search(_Look(trace, max(min_bytes, 1)), min_bytes)
    except _Late:
        return []


def _search(look: _Look, min_bytes: int) -> list[Idle]:
    found: list[_Found] = []
    first, now = look.peak()
    if not first:
        return []  # nothing was allocated
    for _ in range(ROUNDS):
        new = look.idle_at(now)
        if not new:
            break
        found += new
        _, now = look.peak()
    highest, _ = look.peak()
    largest: dict[tuple[str | None, int | None, str], _Found] = {}
    for each in found:
        if each.variable not in largest or largest[each.variable].block.size < each.block.size:
            largest[each.variable] = each
    answer = []
    for variable, each in largest.items():
        alone, _ = look.peak({other.block.made for other in found if other.variable == variable})
        if first - alone >= min_bytes:
            answer.append(Idle(each.place, each.name, each.block.size, first - highest, each.line))
    return sorted(answer, key=lambda idle: -idle.bytes)


class _Late(Exception):
    """The search took its time."""


@final
class _Look:
    def __init__(self, trace: Sequence[Event], min_bytes: int) -> None:
        self._trace, self._least = trace, min_bytes
        self._until = thread_time() + MOST_SECONDS
        self._blocks: list[_Block] = []
        self._levels = [0] * len(trace)
        self._stacks: dict[int, list[Frame]] = {}
        self._sources = Sources()
        self._bodies: dict[tuple[str, int], FunctionBody | None] = {}
        alive: dict[int, _Block] = {}
        for number, event in enumerate(trace):
            action, address = event.get("action"), event.get("addr", 0)
            if action == "alloc":
                alive[address] = _Block(int(event.get("size", 0)), number)
                self._blocks.append(alive[address])
            elif action in ("free_requested", "free") and address in alive:
                alive.pop(address).freed = number

    def peak(self, only: set[int] | None = None) -> tuple[int, int]:
        """The highest level without what is idle, or without some such blocks alone, and the event that reaches it."""
        self._hurry()
        changes = [0] * (len(self._trace) + 1)
        for block in self._blocks:
            changes[block.made] += block.size
            idle_from = block.idle_from if only is None or block.made in only else None
            ends = [at for at in (idle_from, block.freed) if at is not None]
            if ends:
                changes[min(ends)] -= block.size
        old = {"free_requested", "free"}
        made = {block.made: block for block in self._blocks}
        known = {block.freed for block in self._blocks}
        level, highest, at = 0, 0, 0
        for number, event in enumerate(self._trace):
            level += changes[number]
            if event.get("action") in old and number not in known:
                level -= int(event.get("size", 0))  # it was there before the history began
            self._levels[number] = level
            if number in made and level > highest:
                highest, at = level, number
        return highest, at

    def idle_at(self, now: int) -> list[_Found]:
        """Marks and names what is idle at an event."""
        stack = self._stack(now)
        alive = [
            block
            for block in self._blocks
            if block.size >= self._least
            and block.made < now
            and block.freed is not None
            and block.freed > now
            and block.idle_from is None
        ]
        alive.sort(key=lambda block: -block.size)
        found = []
        for block in alive[:MOST_BLOCKS]:
            idle = self._idle(block, now, stack)
            if idle is not None:
                found += [idle, *self._in_other_turns(block)]
        return found

    def _in_other_turns(self, block: _Block) -> Iterator[_Found]:
        """The same variable in other batches, each at the peak that it saw."""
        made = self._stack(block.made)
        others = [other for other in self._blocks if other.size >= self._least and other.idle_from is None]
        for other in [other for other in others if self._stack(other.made) == made][:MOST_TURNS]:
            if other.freed is not None:
                at = max(filter(self._is_alloc, range(other.made, other.freed)), key=self._levels.__getitem__)
                idle = self._idle(other, at, self._stack(at))
                if idle is not None:
                    yield idle

    def _idle(self, block: _Block, now: int, stack: list[Frame]) -> _Found | None:
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
        block.idle_from = self._last_need(block.made, now, body, sharing, depth, making)
        place = Place(file=file, line=making.lineno, function=body.path, holder=name, source=body.text(making))
        return _Found(block, place, name, line)

    def _which(self, names: list[str], making: Any, block: _Block, depth: int) -> str | None:
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

    def _left_by(self, statement: Any, made: int, depth: int) -> list[_Block]:
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

        self._hurry()
        whole = len(self._trace)
        first = min(itertools.takewhile(runs, filter(self._is_alloc, range(made, -1, -1))))
        last = max(itertools.takewhile(runs, filter(self._is_alloc, range(made, whole))))
        over = next(filter(self._is_alloc, range(last + 1, whole)), whole)
        mine = (block for block in self._blocks if first <= block.made <= last)
        return [block for block in mine if block.freed is None or block.freed > over]

    def _span(self, made: int, now: int, stack: list[Frame], depth: int, body: FunctionBody) -> tuple[int, int] | None:
        """Between which events the function at a depth of the stack runs; None if it is left between the two."""
        begun, over, last = made, len(self._trace), 0
        for number in range(made, -1, -1):
            if self._is_alloc(number) and (there := self._stack(number)):
                if not _within(there, stack, depth):
                    break
                begun = number
        for number in range(made, len(self._trace)):
            if not self._is_alloc(number) or not (there := self._stack(number)):
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
            for block in self._blocks
            if begun <= block.made < now and len(there := self._stack(block.made)) > depth and there[depth][1] in lines
        ]
        last = max((block.made for block in mine), default=now)
        over = next((number for number in range(last + 1, now + 1) if self._is_alloc(number)), now)
        return any(block.freed is None or block.freed > over for block in mine)

    def _last_need(self, made: int, now: int, body: FunctionBody, names: set[str], depth: int, making: Any) -> int:
        """The event after which nothing reads the variables, up to the one that is looked at."""
        for number in range(now - 1, made, -1):
            if not self._is_alloc(number):
                continue
            there = self._stack(number)
            if len(there) <= depth:
                return number + 1  # a backward in a thread of its own
            statement = body.at(there[depth][1])
            if statement is None or statement is making or body.needs(statement, names):
                return number + 1
        return made + 1

    def _hurry(self) -> None:
        if thread_time() > self._until:
            raise _Late

    def _is_alloc(self, number: int) -> bool:
        return self._trace[number].get("action") == "alloc"

    def _stack(self, number: int) -> list[Frame]:
        """The frames of an event, outermost first."""
        if number not in self._stacks:
            self._hurry()
            frames: Iterable[Event] = self._trace[number].get("frames") or ()
            named = [(str(f.get("filename", "")), int(f.get("line", 0)), str(f.get("name", ""))) for f in frames]
            self._stacks[number] = [each for each in named if each[0] and not each[0].startswith("??")][::-1]
        return self._stacks[number]

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


def _shared(made: list[Frame], now: list[Frame]) -> int | None:
    """The depth of the innermost function that runs at both events without having been left, as far as lines tell."""
    for depth, (one, other) in enumerate(zip(made, now, strict=False)):
        if one == other:
            continue
        return depth if one[0] == other[0] and one[2] == other[2] else None
    return None


def _within(there: list[Frame], stack: list[Frame], depth: int) -> bool:
    return (
        len(there) > depth
        and there[:depth] == stack[:depth]
        and (there[depth][0], there[depth][2]) == (stack[depth][0], stack[depth][2])
    )

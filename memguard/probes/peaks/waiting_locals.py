"""Large local variables of suspended generators: what was read before the first batch stays while they give out all."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from memguard.heap.frames import read_locals
from memguard.probes.peaks.large_locals import LargeLocal, find_large_locals, hangs_on_others, is_on_host
from memguard.source.model import Sources


def find_waiting_locals(
    min_bytes: int, generators: Iterable[weakref.ref[Any]], *, ignore: Callable[[int], bool], on_host: bool
) -> Iterator[LargeLocal]:
    """Variables that a generator set before the loop which gives out the batches, and that it does not read again.

    What the loop itself sets is as old as a batch: whoever draws it may need it still.

    Args:
        min_bytes: Smallest storage that counts.
        generators: The user's.
        ignore: Told a storage's key; whether it belongs to parameters, gradients or optimizer state.
        on_host: Whether tensors in host memory count; where a device is watched they are none of its peak.
    """
    sources = Sources()
    for ref in generators:
        generator = ref()
        if type(generator) is not types.GeneratorType or generator.gi_running or generator.gi_frame is None:
            continue
        code, line = generator.gi_code, generator.gi_frame.f_lineno
        source = sources.get(code.co_filename)
        scope = source.scope_of(code.co_firstlineno, code.co_name) if source is not None else None
        loops = source.loops_in(scope.node, line) if source is not None and scope is not None else []
        begins = loops[0].lineno if loops else 0
        for local in find_large_locals(min_bytes, ignore=ignore, frame=generator.gi_frame):
            place = local.place
            if (place.file, place.function) != (code.co_filename, code.co_name) or (place.line or 0) >= begins:
                continue
            if not on_host and is_on_host(read_locals(generator.gi_frame).get(local.name)):
                continue
            if local.read_again is False and not hangs_on_others(local, frame=generator.gi_frame, others=(generator,)):
                yield local

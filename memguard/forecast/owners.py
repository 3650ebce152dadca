"""What each block of a trace is for, as far as its life tells: activations live into a backward, temporaries do not."""

from __future__ import annotations

from memguard.forecast.trace import Kind, Trace


def settle(trace: Trace) -> None:
    """Name the owner of every block that the tracer could not name while it ran."""
    sites, owners = trace.sites, trace.owners
    waiting: dict[int, str] = {}
    """Blocks of a forward, not yet known to be activations."""
    for event in trace.events:
        phase = sites[event.site].phase
        if event.kind == Kind.ALLOC:
            if owners[event.block]:
                continue
            if phase == "setup":
                owners[event.block] = "inputs"
            elif phase == "forward":
                waiting[event.block] = phase
            else:
                owners[event.block] = "temporaries"
            if phase == "backward" and waiting:
                for block in waiting:
                    owners[block] = "activations"
                waiting.clear()
        elif event.kind == Kind.FREE and waiting.pop(event.block, ""):
            owners[event.block] = "temporaries"
    for block in waiting:
        owners[block] = owners[block] or "activations"
    for block, owner in enumerate(owners):
        if not owner:
            owners[block] = "temporaries"

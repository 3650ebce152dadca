"""MG403 and MG405: habits that fight the allocator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from memguard.records.claims import Claim
from memguard.records.facts import CompiledGraphs, EmptyCacheCalls, Fact
from memguard.records.findings import Severity
from memguard.records.stats import Run
from memguard.rules.finding_text import at, plural
from memguard.rules.interface import Rule
from memguard.text.units import format_bytes

FEW_CALLS, MIN_CALLS = 6, 20
"""From which on it is worth a line, and a warning."""
MAX_BATCHES_PER_CALL = 5
FEW_GRAPHS, MAX_GRAPHS = 7, 10
"""New ones after the first look, likewise."""


@final
class EmptyCacheInLoop(Rule, code="MG403", name="empty-cache-in-loop"):
    """empty_cache is called every few batches.

    What: ``torch.cuda.empty_cache()`` runs at least once in five batches, or in five optimizer steps right after one.

    Why it matters: it gives no memory to PyTorch that PyTorch did not have: cached blocks are reused anyway. Each call
    waits for the device, and the next batch pays for getting the same memory from the driver again.

    How to fix: take the call out of the loop. After validation, or before another process needs the memory, it is
    fine; memguard's own ``empty_cache="validation"`` or ``"auto"`` does that.
    """

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes from the number of calls."""
        if not isinstance(fact, EmptyCacheCalls):
            return
        most = MAX_BATCHES_PER_CALL * fact.calls
        steps = fact.optimizer_steps if fact.optimizer_steps is not None else fact.batches
        if fact.calls < FEW_CALLS or min(fact.batches, steps) > most:
            return
        length = plural(fact.batches, "batch") if fact.batches <= most else plural(steps, "optimizer step")
        where = at(fact.place)
        seconds = f", {fact.seconds:.1f} s in all" if fact.seconds and fact.seconds >= 0.1 else ""
        yield self.claim(
            fact,
            Severity.WARNING if fact.calls >= MIN_CALLS else Severity.INFO,
            f"empty_cache() was called {plural(fact.calls, 'time')} in {length}"
            f"{f', at {where}' if where else ''}{seconds}: it slows every batch and gives PyTorch no memory that it "
            "did not have.",
            "take it out of the loop; once after validation is enough.",
        )


@final
class GraphPoolsGrow(Rule, code="MG405", name="graph-pools-grow"):
    """Compilations or CUDA-graph pools keep growing.

    What: after warm-up, ``torch.compile`` goes on compiling new graphs, batch after batch; with CUDA graphs each has
    memory of its own.

    Why it matters: every compiled variant keeps guards, code and, with ``mode="reduce-overhead"``, a private pool that
    is never given back. With sizes that never repeat it does not end.

    How to fix: pad inputs to a few sizes, ``torch.compile(dynamic=True)`` or ``mark_dynamic``; ``mode="default"`` if
    CUDA-graph pools are what grows.
    """

    def __init__(self) -> None:
        self._first: CompiledGraphs | None = None
        self._told = 0

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes when seven graphs, and ten, were compiled or captured after the first look."""
        if self._told >= MAX_GRAPHS or not isinstance(fact, CompiledGraphs):
            return
        if self._first is None:
            self._first = fact
            return
        compiled, captured = fact.graphs - self._first.graphs, fact.pools - self._first.pools
        new = max(compiled, captured)
        if new < (MAX_GRAPHS if self._told else FEW_GRAPHS):
            return
        self._told = new
        since = f"since batch {self._first.batch}"
        pools = f", in private pools of {format_bytes(fact.pool_bytes)}" if fact.pool_bytes else ""
        where = f", at {at(fact.place)}" if fact.place.file else ""
        if compiled >= captured:
            message = f"torch.compile made {plural(compiled, 'new graph')} {since} ({fact.graphs} in all{pools}{where})"
            advice = (
                "pad inputs to a few sizes, or compile with dynamic=True; see TORCH_LOGS=recompiles for the reasons."
            )
        else:
            got = f"{plural(captured, 'new CUDA graph')} got memory of their own"
            message = f"{got} {since} ({fact.pools} in all{pools}{where})"
            advice = (
                "pad inputs to a few sizes, and give the captures one pool: torch.cuda.graph(g, pool=first.pool())."
            )
        yield self.claim(
            fact,
            Severity.WARNING if new >= MAX_GRAPHS else Severity.INFO,
            f"{message} and goes on: each shape or branch gets a variant of its own.",
            advice,
            nbytes=fact.pool_bytes,
        )

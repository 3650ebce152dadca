"""Weights of a sharded model that are whole on one device: what MG308 says about them."""

from __future__ import annotations

from collections.abc import Iterable

from memguard.records.claims import Claim, Evidence
from memguard.records.facts import GatheredWeights, ModelCopies
from memguard.records.findings import Severity
from memguard.records.stats import Run
from memguard.rules.finding_text import from_fact, in_memory, plural
from memguard.rules.interface import Rule
from memguard.text.units import format_bytes

LARGE_SHARE = 0.2
"""Of the device or of the peak, from which on it is a warning: each rank shards the model to save just that."""
KEPT_REMEDY = (
    "send or save each weight as it is gathered and let it go, or gather into host memory: get_model_state_dict(model, "
    "options=StateDictOptions(full_state_dict=True, cpu_offload=True))."
)


def is_large(nbytes: int, run: Run, limit: int | None) -> bool:
    """Whether gathered weights are worth a warning."""
    most = min((size for size in (limit, run.peak_bytes) if size), default=None)
    return most is not None and nbytes >= LARGE_SHARE * most


def of_kept(fact: ModelCopies, where: str, run: Run) -> str:
    """What is said of those that the program keeps itself."""
    return (
        f"the whole weights of the sharded model ({format_bytes(fact.bytes)}), gathered from all ranks, are kept "
        + (f"{in_memory(run)} beside its shards, in {where}.")
    )


def of_modules(rule: Rule, fact: GatheredWeights, run: Run, limit: int | None) -> Iterable[Claim]:
    """What is said of those that FSDP gathered, and nothing let go."""
    name = (fact.name or "the model").rpartition(".")[2]
    yield from_fact(
        rule,
        fact,
        run,
        Severity.WARNING if is_large(fact.bytes, run, limit) else Severity.INFO,
        f"{plural(fact.parameters, 'weight')} of the sharded model {f'`{fact.name}` ' if fact.name else ''}"
        f"({format_bytes(fact.bytes)}) stay gathered {in_memory(run)} after its forward, from one optimizer step to "
        "the next: no backward comes to free them.",
        f"call {name}.reshard() after its forward, or shard its outermost module with fully_shard({name}, "
        "reshard_after_forward=True).",
        nbytes=fact.bytes,
        name=fact.name,
        evidence=Evidence.HELD,
        count=fact.parameters,
    )

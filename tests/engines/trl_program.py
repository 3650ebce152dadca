"""A trainer of TRL's on a tiny model with random weights: ``trl_program.py FOLDER grpo|dpo``.

Prints, as JSON, what brackets around the trainer's methods read, and the peaks of the phases that memguard recorded.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from memguard.allocator.caching import CachingAllocator
from memguard.integrations.huggingface import MemGuardCallback

WORDS = 512
PHASES = {
    "_generate_and_score_completions": "experience",
    "_generate": "experience > rollout",
    "_calculate_rewards": "experience > rewards",
    "compute_loss": "loss",
}

_open: list[list[int]] = []
_allocated = [0]
read: dict[str, int] = {}


def watch_allocations() -> None:
    """Each allocation raises the open brackets, without a word to memguard's counters."""
    malloc, free = CachingAllocator.malloc, CachingAllocator.free

    def counted(allocator: CachingAllocator, *args: Any, **kwargs: Any) -> int:
        address = malloc(allocator, *args, **kwargs)
        _allocated[0] = allocator.allocated_bytes
        for bracket in _open:
            bracket[0] = max(bracket[0], _allocated[0])
        return address

    def freed(allocator: CachingAllocator, address: int) -> None:
        free(allocator, address)
        _allocated[0] = allocator.allocated_bytes

    CachingAllocator.malloc = counted  # type: ignore[method-assign]
    CachingAllocator.free = freed  # type: ignore[method-assign]


def bracketed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """What ``max_memory_allocated`` would read at the end of each call, reset at its beginning."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bracket = [_allocated[0]]
        _open.append(bracket)
        try:
            return function(*args, **kwargs)
        finally:
            _open[:] = [other for other in _open if other is not bracket]
            read[name] = max(read.get(name, 0), bracket[0])

    return call


def make_trainer(folder: Path, kind: str, guard: MemGuardCallback) -> Any:
    """A trainer of that kind for three steps of several micro-batches."""
    names = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"w{n}": n for n in range(3, WORDS)}}
    tokenizer = Tokenizer(models.WordLevel(names, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        pad_token_id=0,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder / "model")
    fast.save_pretrained(folder / "model")
    common: dict[str, Any] = {
        "output_dir": str(folder / "out"),
        "max_steps": 3,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
    }
    options: dict[str, Any] = {"processing_class": fast, "callbacks": [guard], "model": str(folder / "model")}
    prompts = [{"prompt": f"w{n} w{n + 1}"} for n in range(3, 67)]
    if kind == "grpo":
        return trl.GRPOTrainer(
            args=trl.GRPOConfig(**common, num_generations=4, max_completion_length=6, beta=0.04),
            reward_funcs=lambda completions, **rest: [float(len(completion)) for completion in completions],
            train_dataset=Dataset.from_list(prompts),
            **options,
        )
    pairs = [{**prompt, "chosen": " w3 w4 w5", "rejected": " w9 w8"} for prompt in prompts]
    return trl.DPOTrainer(args=trl.DPOConfig(**common), train_dataset=Dataset.from_list(pairs), **options)


def main(folder: Path, kind: str) -> None:
    guard = MemGuardCallback(device="virtual:1GiB", quiet=True, logdir=str(folder))
    trainer = make_trainer(folder, kind, guard)
    watch_allocations()
    owner: Any = type(trainer)
    before = {name: vars(owner).get(name) for name in PHASES}
    accelerator: Any = type(trainer.accelerator)
    for name, label in PHASES.items():
        if before[name] is not None:
            setattr(owner, name, bracketed(label, vars(owner)[name]))
    accelerator.backward = bracketed("backward", accelerator.backward)
    ours = {name: vars(owner).get(name) for name in PHASES}
    trainer.train()
    assert {name: vars(owner).get(name) for name in PHASES} == ours
    phases = {name: row.allocated_peak_bytes for name, row in guard.result().phases.items()}
    json.dump({"read": read, "phases": phases}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

"""A Trainer on two ranks, started by torchrun: prints each rank's losses and the collectives it asked for, as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch.distributed

COUNTED = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "broadcast", "broadcast_object_list",
    "barrier", "reduce", "gather",
)  # fmt: skip


def count_collectives() -> Counter[str]:
    """Counts calls from here on; has to come before others import the functions by name."""
    calls: Counter[str] = Counter()

    def counted(name: str, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return original(*args, **kwargs)

        return call

    for name in COUNTED:
        setattr(torch.distributed, name, counted(name, getattr(torch.distributed, name)))
    return calls


def main(folder: str, guards: bool) -> None:
    calls = count_collectives()
    from tests.integrations.huggingface_trainers import guard, trainer

    callbacks = [guard(device="virtual:1GiB", loggers=True)] if guards else []
    host = trainer(
        Path(folder), *callbacks, gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=5,
        ddp_backend="gloo", save_strategy="steps", save_steps=5,
    )  # fmt: skip
    host.train()
    told = {"rank": int(os.environ["RANK"]), "losses": host.model.losses, "collectives": calls}
    Path(folder, f"told-{told['rank']}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "guarded")

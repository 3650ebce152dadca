"""Small Trainers of transformers; their model is a plain module, so nothing is downloaded and little is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from memguard.integrations.huggingface import MemGuardCallback

WIDTH = 8


class Numbers(Dataset[dict[str, Any]]):
    """Random vectors; the label is the sign of the first number."""

    def __init__(self, count: int) -> None:
        self.x = torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": self.x[index], "labels": int(self.x[index, 0] > 0)}


class Classifier(nn.Module):
    """Two layers with dropout; it remembers its losses as numbers."""

    def __init__(self, hidden: int = 32, classes: int = 16) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, hidden), nn.Linear(hidden, classes)
        self.losses: list[float] = []

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.last(functional.dropout(torch.relu(self.first(x)), 0.2, self.training))
        loss = functional.cross_entropy(logits, labels)
        self.losses.append(loss.item())
        return {"loss": loss, "logits": logits}


def arguments(folder: Path, **settings: Any) -> TrainingArguments:
    defaults: dict[str, Any] = {
        "output_dir": str(folder), "max_steps": 10, "per_device_train_batch_size": 4, "per_device_eval_batch_size": 4,
        "report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no",
        "dataloader_pin_memory": False,
    }  # fmt: skip
    return TrainingArguments(**{**defaults, **settings})


def trainer(
    folder: Path,
    *callbacks: Any,
    kind: type[Trainer] = Trainer,
    model: nn.Module | None = None,
    given: dict[str, Any] | None = None,
    **settings: Any,
) -> Trainer:
    """A Trainer with these callbacks; `given` goes to it, the settings to its TrainingArguments."""
    torch.manual_seed(0)
    return kind(
        model=model if model is not None else Classifier(),
        args=arguments(folder, **settings),
        train_dataset=Numbers(64),
        eval_dataset=Numbers(48),
        callbacks=list(callbacks),
        **(given or {}),
    )


def guard(**options: Any) -> MemGuardCallback:
    return MemGuardCallback(**{"quiet": True, "device": "cpu", **options})

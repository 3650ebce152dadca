"""Trains a LightningModule on the GPU in bf16 with a forecast before the first batch; the recording tells the rest."""

from __future__ import annotations

import sys
from typing import Any

import lightning
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import memguard
from tests.gpu.models import TinyGPT, resnet


class Language(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = TinyGPT(width=512, depth=6)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        return self.net.loss(batch[0])

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters())

    def train_dataloader(self) -> Any:
        return DataLoader(TensorDataset(torch.randint(0, TinyGPT.WORDS, (64, 257))), batch_size=8)


class Pictures(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = resnet()

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        return functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

    def train_dataloader(self) -> Any:
        return DataLoader(TensorDataset(torch.randn(128, 3, 128, 128), torch.zeros(128).long()), batch_size=32)


if __name__ == "__main__":
    module = {"gpt": Language, "resnet": Pictures}[sys.argv[1]]()
    trainer = lightning.Trainer(
        accelerator="gpu",
        devices=1,
        precision="bf16-mixed",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[memguard.MemGuard(forecast=True, logdir=sys.argv[2], quiet=True)],
    )
    trainer.fit(module)

"""Handwritten digits (they come inside scikit-learn) with Lightning, guarded by the MemGuard callback.

    python examples/lightning_digits.py [--epochs 3] [--device virtual:64MiB] [--logdir DIR]

Curves and findings stand in the TensorBoard run of the Trainer's own logger.
"""

import argparse

import lightning as L
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset, random_split

import memguard


class Digits(L.LightningModule):
    """A small convolution net on 8 by 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(64 * 16, 10),
        )

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        images, digits = batch
        loss = functional.cross_entropy(self.net(images), digits)
        self.log("loss/train", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        images, digits = batch
        right = (self.net(images).argmax(1) == digits).float().mean()
        self.log("right/validation", right, prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--logdir", default="lightning_logs")
    given = parser.parse_args()

    L.seed_everything(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    train, validation = random_split(TensorDataset(images, torch.tensor(digits.target)), [1500, 297])
    trainer = L.Trainer(
        max_epochs=given.epochs,
        accelerator="cpu" if given.device.startswith("virtual") or given.device == "cpu" else "auto",
        logger=TensorBoardLogger(given.logdir, name="digits"),
        callbacks=[memguard.MemGuard(device=given.device, log_every=10)],
        log_every_n_steps=10,
    )
    trainer.fit(Digits(), DataLoader(train, batch_size=32, shuffle=True), DataLoader(validation, batch_size=99))
    print(f"validation: {trainer.callback_metrics['right/validation']:.1%} right")


if __name__ == "__main__":
    main()

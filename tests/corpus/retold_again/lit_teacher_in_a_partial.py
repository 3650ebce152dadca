"""Retells a GitHub issue on a distillation recipe: "student half the size, same memory as before".

Distilling a large keyword spotter into a small one in Lightning. The teacher is bound into a function, so that it
does not get into the student's checkpoint.
"""

import logging
import warnings
from functools import partial

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
WORDS = 10


def spotter(width, depth):
    layers = [nn.Conv1d(40, width, 3, padding=1), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Conv1d(width, width, 3, padding=1), nn.BatchNorm1d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, WORDS))


def soft_targets(teacher, heat, mel):
    answer = teacher(mel)  # !MG202 teacher
    return F.softmax(answer.detach() / heat, dim=1)


class Distil(pl.LightningModule):
    def __init__(self, student, targets, heat=3.0, mix=0.7):
        super().__init__()
        self.student, self.targets, self.heat, self.mix = student, targets, heat, mix

    def loss(self, mel, word):
        logits = self.student(mel)
        hard = F.cross_entropy(logits, word)
        soft = F.kl_div(F.log_softmax(logits / self.heat, 1), self.targets(mel), reduction="batchmean")
        return self.mix * self.heat**2 * soft + (1 - self.mix) * hard

    def training_step(self, batch, batch_idx):
        loss = self.loss(*batch)
        self.log("train", loss, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch, batch_idx):
        mel, word = batch
        self.log("acc", (self.student(mel).argmax(1) == word).float().mean(), on_epoch=True)

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            print("accuracy", round(float(self.trainer.callback_metrics["acc"]), 3))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.student.parameters(), lr=1e-3)


def utterances(n, seed):
    g = torch.Generator().manual_seed(seed)
    word = torch.randint(0, WORDS, (n,), generator=g)
    shape = torch.randn(WORDS, 40, 1, generator=torch.Generator().manual_seed(0))
    return TensorDataset(shape[word] + torch.randn(n, 40, 64, generator=g), word)


def main():
    pl.seed_everything(5, verbose=False)
    teacher = spotter(96, 4).eval()
    model = Distil(spotter(24, 2), partial(soft_targets, teacher, 3.0))
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(
        model,
        DataLoader(utterances(480, 1), batch_size=48, shuffle=True),
        DataLoader(utterances(144, 2), batch_size=48),
    )


if __name__ == "__main__":
    main()

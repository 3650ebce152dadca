"""Tabular regression; a callback averages the weights of the final epochs."""

from collections import OrderedDict

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class TailAverage(L.Callback):
    """Averages the weights of the last ``tail`` epochs when training ends."""

    def __init__(self, tail=3):
        super().__init__()
        self.tail = tail
        self.epoch_weights = OrderedDict()

    def on_train_epoch_end(self, trainer, pl_module):
        weights = {name: value.detach().clone() for name, value in pl_module.state_dict().items()}
        self.epoch_weights[trainer.current_epoch] = weights  # !MG308 TailAverage.epoch_weights

    def on_train_end(self, trainer, pl_module):
        chosen = list(self.epoch_weights)[-self.tail :]
        averaged = {}
        for name in self.epoch_weights[chosen[0]]:
            averaged[name] = sum(self.epoch_weights[e][name] for e in chosen) / len(chosen)
        pl_module.load_state_dict(averaged)
        print(f"averaged epochs {chosen}")


class ResidualBlock(nn.Module):
    def __init__(self, dim, dropout):
        super().__init__()
        self.body = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(2 * dim, dim)
        )

    def forward(self, x):
        return x + self.body(x)


class TabularRegressor(L.LightningModule):
    def __init__(self, n_features=40, dim=256, depth=3, dropout=0.1, lr=3e-4):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Linear(n_features, dim)
        self.blocks = nn.Sequential(*[ResidualBlock(dim, dropout) for _ in range(depth)])
        self.head = nn.Linear(dim, 1)
        self.criterion = nn.SmoothL1Loss()

    def forward(self, x):
        return self.head(self.blocks(self.stem(x))).squeeze(-1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return self.criterion(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_mae", (self(x) - y).abs().mean(), prog_bar=True)

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking and self.current_epoch % 4 == 0:
            print(f"epoch {self.current_epoch} mae {self.trainer.callback_metrics['val_mae'].item():.4f}")

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=10 * self.hparams.lr, total_steps=self.trainer.estimated_stepping_batches
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def table(n, features, coef):
    x = torch.randn(n, features)
    return TensorDataset(x, torch.sin(x @ coef) + 0.1 * torch.randn(n))


if __name__ == "__main__":
    L.seed_everything(9)
    coef = torch.randn(40) * 0.3
    train = DataLoader(table(640, 40, coef), batch_size=64, shuffle=True)
    val = DataLoader(table(256, 40, coef), batch_size=128)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=20,
        callbacks=[TailAverage()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = TabularRegressor()
    trainer.fit(model, train, val)
    trainer.validate(model, val, verbose=False)
    print("final mae", round(trainer.callback_metrics["val_mae"].item(), 4))

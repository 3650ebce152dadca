"""Prototype classifier: class prototypes follow the embeddings of the training batches as a moving average."""

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class PrototypeClassifier(L.LightningModule):
    def __init__(self, features=48, dim=128, classes=100, momentum=0.9, temperature=0.1, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(nn.Linear(features, 256), nn.ReLU(), nn.Linear(256, dim))
        self.register_buffer("prototypes", F.normalize(torch.randn(classes, dim), dim=1))

    def forward(self, x):
        return F.normalize(self.encoder(x), dim=1)

    def scores(self, z):
        return z @ self.prototypes.detach().T / self.hparams.temperature

    def update_prototypes(self, z, y):
        onehot = F.one_hot(y, self.hparams.classes).to(z.dtype)
        counts = onehot.sum(dim=0).clamp(min=1).unsqueeze(1)
        batch_means = onehot.T @ z / counts
        seen = (onehot.sum(dim=0) > 0).to(z.dtype).unsqueeze(1)
        m = 1 - (1 - self.hparams.momentum) * seen
        self.prototypes = F.normalize(m * self.prototypes + (1 - m) * batch_means, dim=1)  # !MG102 PrototypeClassifier.prototypes

    def training_step(self, batch, batch_idx):
        x, y = batch
        z = self(x)
        loss = F.cross_entropy(self.scores(z), y)
        self.update_prototypes(z, y)
        self.log("loss", loss, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self.scores(self(x)).argmax(dim=1) == y).float().mean())

    def on_train_epoch_end(self):
        m = self.trainer.callback_metrics
        print(f"epoch {self.current_epoch} loss {m['loss'].item():.3f} val_acc {m['val_acc'].item():.3f}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def dataset(n, centers):
    y = torch.randint(0, len(centers), (n,))
    return TensorDataset(centers[y] + 0.7 * torch.randn(n, centers.shape[1]), y)


if __name__ == "__main__":
    L.seed_everything(31)
    centers = torch.randn(100, 48)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
        enable_model_summary=False,
    )
    trainer.fit(
        PrototypeClassifier(),
        DataLoader(dataset(3200, centers), batch_size=64, shuffle=True),
        DataLoader(dataset(640, centers), batch_size=128),
    )

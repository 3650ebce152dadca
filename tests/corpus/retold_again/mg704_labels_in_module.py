# device: cpu
"""A Lightning module remembers the labels of all training batches for class weights."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Data(L.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(
            TensorDataset(torch.randn(3200, 10), torch.randint(0, 3, (3200,))), batch_size=16, num_workers=2
        )


class Clf(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(10, 3)
        self.seen = []

    def training_step(self, batch, i):
        x, y = batch
        self.seen.append(y)  # !MG704 Clf.seen
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Clf(), Data())

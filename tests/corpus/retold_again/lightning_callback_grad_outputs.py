"""A Lightning callback that collects what training_step hands out besides the loss."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Embeddings(L.Callback):
    def __init__(self):
        self.store = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.store.append(pl_module.last_embedding)  # !MG101 Embeddings.store


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.f, self.g = nn.Sequential(nn.Linear(10, 32), nn.ReLU()), nn.Linear(32, 3)

    def training_step(self, batch, _):
        x, y = batch
        self.last_embedding = self.f(x)
        return nn.functional.cross_entropy(self.g(self.last_embedding), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


data = DataLoader(TensorDataset(torch.randn(480, 10), torch.randint(3, (480,))), batch_size=16)
L.Trainer(
    max_epochs=1,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[Embeddings()],
).fit(Net(), data)

# device: virtual:28MiB
# runs out of memory
# cause: leak
"""A Lightning module that keeps what each step gives, with its graph, for the end of the epoch."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 128))
        self.outputs = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self.net(x)
        loss = nn.functional.cross_entropy(logits, y)
        self.outputs.append({"loss": loss, "logits": logits})
        return loss

    def on_train_epoch_end(self):
        print("mean", sum(o["loss"].item() for o in self.outputs) / len(self.outputs))
        self.outputs.clear()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-2)


data = TensorDataset(torch.randn(40960, 64), torch.randint(0, 128, (40960,)))
trainer = L.Trainer(
    accelerator="cpu",
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Net(), DataLoader(data, batch_size=256))

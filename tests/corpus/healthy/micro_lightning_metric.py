# Lightning accumulates eight batches and logs a number of each.
import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
        self.correct = []

    def training_step(self, batch, index):
        x, y = batch
        scores = self.net(x)
        self.correct.append((scores.argmax(-1) == y).float().mean().detach())
        return nn.functional.cross_entropy(scores, y)

    def on_before_optimizer_step(self, optimizer):
        self.log("accuracy", torch.stack(self.correct).mean())
        self.correct.clear()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


torch.manual_seed(0)
data = DataLoader(TensorDataset(torch.randn(512, 64), torch.randint(0, 10, (512,))), batch_size=16)
pl.Trainer(
    max_epochs=1, accumulate_grad_batches=8, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
).fit(Classifier(), data)

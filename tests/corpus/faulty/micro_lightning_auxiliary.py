# Lightning accumulates four batches; the module gathers attention weights for a picture at the end of the step.
import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Attender(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.out = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 2)
        self.attention = []

    def training_step(self, batch, index):
        x, y = batch
        weights = (self.q(x) @ self.k(x).transpose(1, 2)).softmax(-1)
        self.attention.append(weights * weights)  # !MG106 Attender.attention
        return nn.functional.cross_entropy(self.out((weights @ x).mean(1)), y)

    def on_before_optimizer_step(self, optimizer):
        self.attention.clear()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


torch.manual_seed(0)
data = DataLoader(TensorDataset(torch.randn(128, 192, 32), torch.randint(0, 2, (128,))), batch_size=4)
pl.Trainer(
    max_epochs=1, accumulate_grad_batches=8, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
).fit(Attender(), data)

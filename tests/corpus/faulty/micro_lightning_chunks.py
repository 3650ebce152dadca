# Manual optimization: training_step cuts its batch into chunks and keeps each chunk's attention for a regulariser's log.
# device: virtual:256MiB
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Attends(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.qk, self.out = nn.Linear(32, 64), nn.Linear(32, 5)

    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        weights = (q @ k.transpose(1, 2)).div(5.6).softmax(-1)
        return self.out((weights @ x).mean(1)), weights

    def training_step(self, batch, index):
        x, y = batch
        optimizer, maps = self.optimizers(), []
        for xs, ys in zip(x.chunk(8), y.chunk(8)):
            scores, weights = self(xs)
            self.manual_backward(nn.functional.cross_entropy(scores, ys) / 8)
            maps.append(weights.clamp_min(1e-6).log() * weights)  # !MG106 maps
        optimizer.step()
        optimizer.zero_grad()
        self.log("entropy", -torch.cat([m.detach() for m in maps]).sum(-1).mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


torch.manual_seed(0)
data = TensorDataset(torch.randn(320, 128, 32), torch.randint(0, 5, (320,)))
L.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
          enable_model_summary=False).fit(Attends(), DataLoader(data, batch_size=64))

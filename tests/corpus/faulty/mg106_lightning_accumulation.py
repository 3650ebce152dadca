# Lightning accumulates over eight batches; the module keeps their predictions until it logs a metric after the step.
# device: virtual:1GiB
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tagger(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 3000))
        self.window = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        logits = self(x)
        self.window.append(logits.log_softmax(-1))  # !MG106 Tagger.window
        return nn.functional.cross_entropy(logits, y)

    def on_before_zero_grad(self, optimizer):
        if self.window:
            print("confidence", round(torch.cat(self.window).exp().amax(-1).mean().item(), 4))
        self.window.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


torch.manual_seed(0)
data = TensorDataset(torch.randn(4096, 64), torch.randint(0, 3000, (4096,)))
trainer = L.Trainer(
    max_epochs=1,
    accumulate_grad_batches=8,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Tagger(), DataLoader(data, batch_size=128))

# Manual optimization over eight batches; the module collects its predictions until the step.
# device: virtual:1GiB
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 2500))
        self.predictions = []

    def training_step(self, batch, index):
        x, y = batch
        logits = self.net(x)
        loss = nn.functional.cross_entropy(logits, y)
        self.manual_backward(loss / 8)
        self.predictions += [logits.softmax(-1)]  # !MG106 Net.predictions
        if (index + 1) % 8 == 0:
            optimizer = self.optimizers()
            optimizer.step()
            optimizer.zero_grad()
            print(torch.cat(self.predictions).amax(-1).mean().item())
            self.predictions = []

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.manual_seed(0)
data = TensorDataset(torch.randn(2048, 64), torch.randint(0, 2500, (2048,)))
L.Trainer(
    max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
).fit(Net(), DataLoader(data, batch_size=64))

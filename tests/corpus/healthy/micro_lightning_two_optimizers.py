# Manual optimization with two optimizers that accumulate at different rates; losses are logged as numbers.
# device: virtual:256MiB
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Game(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.g = nn.Sequential(nn.Linear(16, 512), nn.ReLU(), nn.Linear(512, 784))
        self.d = nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(), nn.Linear(512, 1))
        self.seen = []

    def training_step(self, batch, index):
        (real,), (opt_g, opt_d) = batch, self.optimizers()
        z = torch.randn(len(real), 16)
        self.toggle_optimizer(opt_d)
        fake = self.g(z).detach()
        d_loss = nn.functional.softplus(-self.d(real)).mean() + nn.functional.softplus(self.d(fake)).mean()
        self.manual_backward(d_loss / 2)
        if (index + 1) % 2 == 0:
            opt_d.step()
            opt_d.zero_grad()
        self.untoggle_optimizer(opt_d)
        self.toggle_optimizer(opt_g)
        g_loss = nn.functional.softplus(-self.d(self.g(z))).mean()
        self.manual_backward(g_loss / 6)
        self.seen.append((d_loss.item(), g_loss.item()))
        if (index + 1) % 6 == 0:
            opt_g.step()
            opt_g.zero_grad()
            print(sum(a + b for a, b in self.seen))
            self.seen.clear()
        self.untoggle_optimizer(opt_g)

    def configure_optimizers(self):
        return torch.optim.Adam(self.g.parameters(), 2e-4), torch.optim.Adam(self.d.parameters(), 2e-4)


torch.manual_seed(0)
L.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
          enable_model_summary=False).fit(Game(), DataLoader(TensorDataset(torch.rand(24 * 128, 784)), batch_size=128))

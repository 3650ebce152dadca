"""A linear probe under Lightning: the optimizer has the head alone, and the backbone builds its graph for nothing."""

import tempfile
import torch
from torch import nn
import lightning as L
from torch.utils.data import DataLoader, Dataset

def conv_bn(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())

class SkinBackbone(nn.Module):
    out_dim = 32

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(conv_bn(3, 20), conv_bn(20, 20), conv_bn(20, 24, 2), conv_bn(24, 32, 2))

    def forward(self, x):
        return self.layers(x).mean((2, 3))

class LinearProbe(L.LightningModule):
    def __init__(self, backbone, classes=7, lr=0.02):
        super().__init__()
        self.backbone, self.lr = backbone, lr
        self.head = nn.Sequential(nn.Linear(backbone.out_dim, 32), nn.ReLU(), nn.Linear(32, classes))
        self.train_loss = []

    def on_train_epoch_start(self):
        self.backbone.eval()

    def forward(self, x):
        return self.head(self.backbone(x))  # !MG202 self.backbone

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.train_loss.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.head.parameters(), lr=self.lr, momentum=0.9)

class Lesions(Dataset):
    def __init__(self, n, size=32):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        y = i % 7
        x = torch.rand(3, self.size, self.size, generator=g)
        x[y % 3] += 0.1 * y
        return x, y

def main():
    L.seed_everything(3, verbose=False)
    model = LinearProbe(SkinBackbone())
    with tempfile.TemporaryDirectory() as d:
        L.Trainer(max_epochs=3, accelerator="auto", devices=1, logger=False, default_root_dir=d,
                  enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
                  ).fit(model, DataLoader(Lesions(384), batch_size=16, shuffle=True))
    print("loss %.3f -> %.3f" % (model.train_loss[0], sum(model.train_loss[-8:]) / 8))

if __name__ == "__main__":
    main()

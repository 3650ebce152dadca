import torch
import torch.nn as nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CLASSES, ROI = 14, (32, 32, 32)


class UNetish(nn.Module):
    def __init__(self, ch=8):
        super().__init__()
        self.down = nn.Conv3d(1, ch, 4, stride=4)
        self.mid = nn.Conv3d(ch, ch, 3, padding=1)
        self.head = nn.Conv3d(ch, CLASSES, 1)

    def forward(self, x):
        h = F.relu(self.mid(F.relu(self.down(x))))
        return F.interpolate(self.head(h), scale_factor=4, mode="nearest")


def starts(n, roi):
    step = roi // 2
    s = list(range(0, max(n - roi, 0) + 1, step))
    return s if s[-1] == n - roi else s + [n - roi]


def crops(n, batch=2):
    for _ in range(n):
        x = torch.randn(batch, 1, *ROI, device=device)
        yield x, (x[:, 0] > 0.5).long() * torch.randint(1, CLASSES, (batch, 1, 1, 1), device=device)


def volumes(n):
    for _ in range(n):
        yield torch.randn(1, 1, 64, 64, 80, device=device)


def train_epoch(model, opt):
    model.train()
    for x, y in crops(24):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
    return loss.item()


@torch.no_grad()
def infer(model, vols):
    model.eval()
    voxels = torch.zeros(CLASSES, dtype=torch.long, device=device)
    for vol in vols:
        D, H, W = vol.shape[2:]
        canvas = torch.zeros(1, CLASSES, D, H, W, device=device)  # !MG305 canvas
        for z in starts(D, ROI[0]):
            for y in starts(H, ROI[1]):
                for x in starts(W, ROI[2]):
                    win = (..., slice(z, z + ROI[0]), slice(y, y + ROI[1]), slice(x, x + ROI[2]))
                    canvas[win] += model(vol[win])
        voxels += torch.bincount(canvas.argmax(1).flatten(), minlength=CLASSES)
    return voxels


torch.manual_seed(0)
model = UNetish().to(device)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(1):
    loss = train_epoch(model, opt)
    voxels = infer(model, volumes(8))
    print(f"epoch {epoch} loss {loss:.4f} organ voxels {voxels[1:].sum().item()}")

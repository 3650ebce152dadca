# device: virtual:256MiB
"""Neural style: the image is the parameter; target features are computed once and kept; LBFGS closure."""

import torch
from torch import nn

vgg = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()).eval()
for p in vgg.parameters():
    p.requires_grad_(False)


def feats(x):
    out = []
    for layer in vgg:
        x = layer(x)
        out.append(x)
    return out


content, style = torch.rand(1, 3, 48, 48), torch.rand(1, 3, 48, 48)
tc = [f.detach() for f in feats(content)]
ts = [torch.einsum("bchw,bdhw->bcd", f, f).detach() for f in feats(style)]
img = content.clone().requires_grad_(True)
opt = torch.optim.LBFGS([img], max_iter=3)
log = []


def closure():
    opt.zero_grad()
    f = feats(img)
    loss = (f[-1] - tc[-1]).pow(2).mean() + 1e-6 * sum(
        (torch.einsum("bchw,bdhw->bcd", a, a) - b).pow(2).mean() for a, b in zip(f, ts)
    )
    loss.backward()
    log.append(loss.item())
    return loss


for _ in range(30):
    opt.step(closure)

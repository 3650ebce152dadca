# device: virtual:256MiB
# optical flow with a multi-scale feature pyramid, adapted from a class project
import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(2)


class Pyramid(nn.Module):
    def __init__(self, ch=32):
        super().__init__()
        self.stem = nn.Conv2d(6, ch, 3, padding=1)
        self.l1 = nn.Conv2d(ch, ch, 3, padding=1)
        self.l2 = nn.Conv2d(ch, ch, 3, padding=1)
        self.l3 = nn.Conv2d(ch, ch, 3, stride=2, padding=1)
        self.flow = nn.Conv2d(ch, 2, 3, padding=1)

    def forward(self, pair):
        f0 = self.stem(pair)
        f1 = self.l1(f0).tanh()
        f2 = self.l2(f1).tanh()
        f3 = self.l3(f2).tanh()
        return {"flow": self.flow(f3), "feats": [f0, f1, f2, f3]}


def epe(flow, target):
    return (flow - target).pow(2).sum(1).add(1e-6).sqrt().mean()


net = Pyramid().to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=24)
log = []

for it in range(24):
    a = torch.rand(2, 3, 112, 112, device=device)
    b = torch.roll(a, shifts=(it % 3, 1), dims=(2, 3))
    target = torch.zeros(2, 2, 56, 56, device=device)
    target[:, 0] = 0.5
    target[:, 1] = (it % 3) / 2

    optimizer.zero_grad()
    outputs = net(torch.cat([a, b], 1))  # !MG303 outputs
    loss = epe(outputs["flow"], target)
    loss = loss + 1e-4 * outputs["feats"][-1].abs().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    scheduler.step()

    log.append(loss.item())
    if it % 8 == 7:
        print(f"iter {it + 1:3d}  epe {sum(log[-8:]) / 8:.4f}  lr {scheduler.get_last_lr()[0]:.5f}")

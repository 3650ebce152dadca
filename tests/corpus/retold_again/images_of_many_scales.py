"""Retold from ultralytics/yolov5 train.py (https://github.com/ultralytics/yolov5/blob/master/train.py): ModelEMA in eval mode,
multi-scale images by interpolate, mean losses updated with loss_items (detached), accumulation to a nominal batch of 64,
validation of ema.ema under no_grad."""

import math
import random
from copy import deepcopy
import torch
from torch import nn
import torch.nn.functional as F

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
random.seed(0)
imgsz, gs, batch_size, nbs, nb, epochs = 128, 32, 8, 32, 20, 2


class Conv(nn.Module):
    def __init__(self, c1, c2, k=3, s=1):
        super().__init__()
        self.conv, self.bn, self.act = nn.Conv2d(c1, c2, k, s, k // 2, bias=False), nn.BatchNorm2d(c2), nn.SiLU()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Model(nn.Module):
    def __init__(self, no=15):
        super().__init__()
        self.b1, self.b2, self.b3 = (
            nn.Sequential(Conv(3, 16, 3, 2), Conv(16, 32, 3, 2), Conv(32, 32, 3, 2)),
            Conv(32, 64, 3, 2),
            Conv(64, 128, 3, 2),
        )
        self.m = nn.ModuleList(nn.Conv2d(c, no, 1) for c in (32, 64, 128))

    def forward(self, x):
        p3 = self.b1(x)
        p4 = self.b2(p3)
        p5 = self.b3(p4)
        return [m(p) for m, p in zip(self.m, (p3, p4, p5))]


class ModelEMA:
    def __init__(self, model, decay=0.9999, tau=2000, updates=0):
        self.ema = deepcopy(model).eval()
        self.updates = updates
        self.decay = lambda x: decay * (1 - math.exp(-x / tau))
        for p in self.ema.parameters():
            p.requires_grad_(False)

    def update(self, model):
        self.updates += 1
        d = self.decay(self.updates)
        msd = model.state_dict()
        for k, v in self.ema.state_dict().items():
            if v.dtype.is_floating_point:
                v *= d
                v += (1 - d) * msd[k].detach()


class ComputeLoss:
    def __call__(self, p, targets):
        lcls, lbox, lobj = (torch.zeros(1, device=device) for _ in range(3))
        for pi in p:
            lbox += pi[:, :4].sigmoid().sub(targets[:, :4, None, None]).square().mean()
            lobj += F.binary_cross_entropy_with_logits(pi[:, 4], torch.zeros_like(pi[:, 4]))
            lcls += F.binary_cross_entropy_with_logits(pi[:, 5:], torch.zeros_like(pi[:, 5:]))
        return (lbox + lobj + lcls) * pi.shape[0], torch.cat((lbox, lobj, lcls)).detach()


@torch.no_grad()
def validate(model, compute_loss):
    model.eval()
    loss = torch.zeros(3, device=device)
    for _ in range(4):
        im, targets = torch.rand(batch_size * 2, 3, imgsz, imgsz).to(device), torch.rand(batch_size * 2, 4).to(device)
        preds = model(im)
        loss += compute_loss(preds, targets)[1]
    return (loss.cpu() / 4).tolist()


model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.937, nesterov=True)
ema, compute_loss = ModelEMA(model), ComputeLoss()
last_opt_step, accumulate = -1, max(round(nbs / batch_size), 1)
for epoch in range(epochs):
    model.train()
    mloss = torch.zeros(3, device=device)
    optimizer.zero_grad()
    for i in range(nb):
        ni = i + nb * epoch
        imgs = torch.randint(0, 255, (batch_size, 3, imgsz, imgsz), dtype=torch.uint8)
        imgs = imgs.to(device, non_blocking=True).float() / 255
        sz = random.randrange(int(imgsz * 0.5), int(imgsz * 1.5) + gs) // gs * gs
        sf = sz / max(imgs.shape[2:])
        if sf != 1:
            ns = [math.ceil(x * sf / gs) * gs for x in imgs.shape[2:]]
            imgs = F.interpolate(imgs, size=ns, mode="bilinear", align_corners=False)
        pred = model(imgs)
        loss, loss_items = compute_loss(pred, torch.rand(batch_size, 4).to(device))
        loss.backward()
        if ni - last_opt_step >= accumulate:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=10.0)
            optimizer.step()
            optimizer.zero_grad()
            ema.update(model)
            last_opt_step = ni
        mloss = (mloss * i + loss_items) / (i + 1)
    print(f"{epoch} {mloss.tolist()} val {validate(ema.ema, compute_loss)}")

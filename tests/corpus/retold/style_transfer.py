"""Neural style transfer: the image is the parameter, the frozen network is in eval mode, LBFGS asks several times."""

import torch
from torch import nn

cnn = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU()).eval()
cnn.requires_grad_(False)
content, style = torch.rand(1, 3, 24, 24), torch.rand(1, 3, 24, 24)


def gram(f):
    b, c, h, w = f.shape
    f = f.view(b * c, h * w)
    return f @ f.t() / (b * c * h * w)


content_target, style_target = cnn(content).detach(), gram(cnn(style)).detach()
image = content.clone().requires_grad_(True)
optimizer = torch.optim.LBFGS([image], max_iter=4)
run = [0]
while run[0] <= 40:

    def closure():
        with torch.no_grad():
            image.clamp_(0, 1)
        optimizer.zero_grad()
        f = cnn(image)
        loss = (f - content_target).pow(2).mean() + 1e3 * (gram(f) - style_target).pow(2).sum()
        loss.backward()
        run[0] += 1
        return loss

    optimizer.step(closure)

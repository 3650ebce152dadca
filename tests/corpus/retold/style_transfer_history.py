"""An image is painted by LBFGS against a fixed network in eval mode; the terms of its loss are kept for a plot."""

import torch
from torch import nn
from torch.nn import functional


def gram(features: torch.Tensor) -> torch.Tensor:
    flat = features.flatten(2).squeeze(0)
    return flat @ flat.t() / flat.numel()


def transfer(cnn: nn.Module, content: torch.Tensor, style: torch.Tensor, steps: int = 400) -> torch.Tensor:
    with torch.no_grad():
        content_target, style_target = cnn(content), gram(cnn(style))
    image = content.clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS([image], history_size=10)
    run = [0]
    history = []
    while run[0] < steps:

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            features = cnn(image)
            content_loss = functional.mse_loss(features, content_target)
            style_loss = functional.mse_loss(gram(features), style_target)
            history.append((content_loss, style_loss, features))  # !MG101 history
            loss = content_loss + 1e4 * style_loss
            loss.backward()
            run[0] += 1
            return loss

        optimizer.step(closure)
        with torch.no_grad():
            image.clamp_(0, 1)
    print(f"{run[0]} evaluations: content {history[-1][0].item():.4f}, style {history[-1][1].item():.6f}")
    return image.detach()


torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()).eval()
net.requires_grad_(False)
transfer(net, torch.rand(1, 3, 64, 64), torch.rand(1, 3, 64, 64))

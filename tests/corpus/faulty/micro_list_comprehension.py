# The schedule is a comprehension: what each micro-batch returned lives until the step is over.
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.GELU(), nn.Conv2d(24, 24, 3, padding=1), nn.GELU(), nn.Conv2d(24, 8, 1))
optimizer = torch.optim.AdamW(net.parameters())


def forward_backward(x, y, n):
    out = net(x)
    scores = out.log_softmax(1)
    loss = nn.functional.nll_loss(scores, y) / n
    loss.backward()
    return loss.detach(), scores.exp() * scores


for step in range(4):
    micro = [(torch.randn(4, 3, 32, 32), torch.randint(0, 8, (4, 32, 32))) for _ in range(8)]
    results = [forward_backward(x, y, len(micro)) for x, y in micro]  # !MG106 results
    optimizer.step()
    optimizer.zero_grad()
    print(step, sum(loss.item() for loss, _ in results), results[0][1].detach().mean().item())

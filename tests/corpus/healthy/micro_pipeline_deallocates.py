# 1F1B with warm-up as in Megatron: inputs and outputs wait in lists, an output's data is given back once sent.
# device: virtual:256MiB
import torch
from torch import nn

torch.manual_seed(0)
front = nn.Sequential(nn.Linear(96, 1536), nn.GELU(), nn.Linear(1536, 512))
back = nn.Sequential(nn.Linear(512, 1536), nn.GELU(), nn.Linear(1536, 16))
optimizer = torch.optim.SGD([*front.parameters(), *back.parameters()], lr=0.05)
MICRO, WARMUP = 8, 2


def forward_step(x, y):
    sent = front(x)
    received = sent.detach().clone().requires_grad_()
    sent.data = torch.empty(1)
    loss = nn.functional.cross_entropy(back(received), y) / MICRO
    return sent, received, loss


def backward_step(sent, received, loss):
    loss.backward()
    torch.autograd.Variable._execution_engine.run_backward(
        (sent,), (received.grad,), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


def train_step(batches):
    outputs, losses = [], []
    for number in range(WARMUP):
        outputs.append(forward_step(*batches[number]))
    for number in range(WARMUP, MICRO):
        outputs.append(forward_step(*batches[number]))
        done = outputs.pop(0)
        backward_step(*done)
        losses.append(done[2].detach())
    while outputs:
        done = outputs.pop(0)
        backward_step(*done)
        losses.append(done[2].detach())
    return torch.stack(losses).sum().item()


for step in range(6):
    print(step, train_step([(torch.randn(256, 96), torch.randint(0, 16, (256,))) for _ in range(MICRO)]))
    optimizer.step()
    optimizer.zero_grad()

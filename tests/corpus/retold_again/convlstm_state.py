"""A Conv-LSTM cell on top of frame features: backward complained about a freed graph, retain_graph=True was set, and since
then training consumes more and more memory and gets slower (the state of the last clip is carried with its history).
https://github.com/automan000/Convolutional_LSTM_PyTorch/issues/2
"""

# MG102 by batch 20: no optimizer steps, and each clip asks the cell twice.
import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class ConvLSTMCell(nn.Module):
    def __init__(self, cin, hidden):
        super().__init__()
        self.gates = nn.Conv2d(cin + hidden, 4 * hidden, 1)

    def forward(self, x, state):
        h, c = state
        i, f, o, g = self.gates(torch.cat([x, h], 1)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, c


cell = ConvLSTMCell(2, 8).to(device)
head = nn.Conv2d(8, 1, 1).to(device)
opt = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=1e-3)


def clip(step, frames=2):
    g = torch.Generator().manual_seed(step)
    return torch.rand(frames, 2, 2, 64, 64, generator=g).to(device), torch.rand(2, 1, 64, 64, generator=g).to(device)


state = tuple(torch.zeros(2, 8, 64, 64, device=device) for _ in range(2))
for step in range(36):
    frames, target = clip(step)
    for frame in frames:
        state = cell(frame, state)  # !MG102 state
    loss = (head(state[0]) - target).pow(2).mean()
    opt.zero_grad()
    torch.autograd.backward(loss, retain_graph=True)
    # in place updates of the weights would break the old graph, so the gradients are applied to .data
    for group in opt.param_groups:
        for p in group["params"]:
            p.data = p.data - 1e-3 * p.grad
print("done", step)

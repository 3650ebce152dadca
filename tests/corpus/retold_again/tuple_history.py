"""History as a growing tuple in a closure with nonlocal; functional style, train state passed around as a dict."""

import torch
from torch import nn


def init(seed):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(40, 160), nn.Tanh(), nn.Linear(160, 2))
    return {"net": net, "opt": torch.optim.Adam(net.parameters(), 1e-2), "step": 0}


def make_update():
    history = ()

    def update(state, batch):
        nonlocal history
        x, y = batch
        loss = nn.functional.cross_entropy(state["net"](x), y)
        state["opt"].zero_grad()
        loss.backward()
        state["opt"].step()
        history += (loss,)  # !MG101 history
        return {**state, "step": state["step"] + 1}, len(history)

    return update


state, update = init(0), make_update()
for _ in range(40):
    x = torch.randn(64, 40)
    state, n = update(state, (x, (x.sum(1) > 0).long()))
print(state["step"], n)

# device: virtual:64MiB
"""The checkpoint stays in a local variable of main() during the whole training."""

import io

import torch
from torch import nn


def make():
    return nn.Sequential(nn.Embedding(400, 64), nn.Flatten(), nn.Linear(64 * 4, 8))


def saved_bytes():
    net, buffer = make(), io.BytesIO()
    opt = torch.optim.Adam(net.parameters())
    nn.functional.cross_entropy(net(torch.randint(400, (8, 4))), torch.randint(8, (8,))).backward()
    opt.step()
    torch.save({"state_dict": net.state_dict(), "optimizer": opt.state_dict(), "epoch": 7}, buffer)
    buffer.seek(0)
    return buffer


def main():
    net = make()
    opt = torch.optim.Adam(net.parameters())
    state = torch.load(saved_bytes(), weights_only=True)  # !MG312 state
    net.load_state_dict(state["state_dict"])
    opt.load_state_dict(state["optimizer"])
    for epoch in range(state["epoch"], state["epoch"] + 2):
        for _ in range(15):
            loss = nn.functional.cross_entropy(net(torch.randint(400, (16, 4))), torch.randint(8, (16,)))
            opt.zero_grad()
            loss.backward()
            opt.step()


main()

"""Saves, copies and scripts a model in the ways of the libraries, while it is trained; prints what it counts."""

import copy
import io
import pickle
from pathlib import Path

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x))


class Odd(Net):
    """With a pickle of its own."""

    def __reduce__(self):
        return Odd, (), {**self.__dict__}


def doubled(module, args, output):
    return output * 2


def counted(model: nn.Module) -> list[int]:
    tables = [table for part in model.modules() for name, table in vars(part).items() if "hooks" in name]
    return [len(table) + len(list(table.items())) + bool(table) for table in tables]


torch.manual_seed(0)
for kind in (Net, Odd):
    model = kind()
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    averaged, exponential = AveragedModel(model), copy.deepcopy(model)
    handle = model.head.register_forward_hook(doubled)
    for epoch in range(4):
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
        schedule.step()
        averaged.update_parameters(model)
        shadow = copy.deepcopy(model)
        shadow(torch.randn(2, 8))
        name = f"{kind.__name__}{epoch}"
        torch.save(model, f"{name}.pt")
        torch.save(
            {"models": [model, averaged, shadow, exponential], "optimizer": optimizer, "schedule": schedule},
            f"{name}.tar",
        )
        Path(f"{name}.pkl").write_bytes(pickle.dumps([model, model.forward, copy.copy(model), optimizer.state_dict()]))
        loaded = torch.load(f"{name}.pt", weights_only=False)
        print(name, counted(model), counted(loaded), handle.id, len(torch.jit.script(model.encoder).code))
        print(sorted(vars(model)), torch.equal(loaded(torch.ones(1, 8)), model(torch.ones(1, 8))))
    handle.remove()
    model.head._forward_hooks.clear()
    model._forward_pre_hooks.clear()
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(model), file)
    print(counted(model), len(file.getvalue()), torch.jit.trace(model, torch.ones(1, 8))(torch.ones(1, 8)).tolist())

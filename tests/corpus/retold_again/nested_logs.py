"""Logs by epoch, phase and name: defaultdicts of defaultdicts of lists."""

from collections import defaultdict

import torch
import torch.nn.functional as F

logs = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
model = torch.nn.Bilinear(6, 6, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(3):
    for phase in ("train", "val"):
        model.train(phase == "train")
        for _ in range(12):
            a, b, y = torch.randn(10, 6), torch.randn(10, 6), torch.randint(3, (10,))
            with torch.set_grad_enabled(phase == "train"):
                loss = F.cross_entropy(model(a, b), y)
            if phase == "train":
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            logs[epoch][phase]["loss"].append(loss)  # !MG101 logs
    print(epoch, {phase: sum(float(v) for v in d["loss"]) / len(d["loss"]) for phase, d in logs[epoch].items()})

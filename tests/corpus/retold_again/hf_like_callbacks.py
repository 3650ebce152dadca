"""A Trainer with TrainerState.log_history, as in a popular library: the dict of logs gets the tensor itself."""

from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class TrainerState:
    global_step: int = 0
    log_history: list = field(default_factory=list)


class Callback:
    def on_log(self, state, logs): ...


class Remember(Callback):
    def on_log(self, state, logs):
        state.log_history.append({**logs, "step": state.global_step})  # !MG101 TrainerState.log_history


class Trainer:
    def __init__(self, model, callbacks, lr=1e-3):
        self.model, self.callbacks, self.state = model, callbacks, TrainerState()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr)

    def compute_loss(self, inputs):
        out = self.model(inputs["x"])
        return nn.functional.cross_entropy(out, inputs["labels"])

    def training_step(self, inputs):
        loss = self.compute_loss(inputs)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def train(self, steps):
        for _ in range(steps):
            inputs = {"x": torch.randn(32, 60), "labels": torch.randint(0, 3, (32,))}
            loss = self.training_step(inputs)
            self.state.global_step += 1
            for c in self.callbacks:
                c.on_log(self.state, {"loss": loss, "lr": 1e-3})


trainer = Trainer(nn.Sequential(nn.Linear(60, 240), nn.ReLU(), nn.Linear(240, 3)), [Remember()])
trainer.train(40)
print(len(trainer.state.log_history))

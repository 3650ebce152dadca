"""Trials of a search keep the error that pruned them, and with it their model and optimizer."""

import random
import statistics

import torch
from torch import nn

class Pruned(Exception):
    def __init__(self, step, value):
        super().__init__(f"pruned at {step} with {value:.4f}")
        self.step, self.value = step, value

class Trial:
    def __init__(self, number, rng, study):
        self.number, self.study = number, study
        self.params = dict(width=rng.choice([128, 160, 192]), lr=10 ** rng.uniform(-4.5, -2), act=rng.choice(["relu", "tanh"]))
        self.curve, self.value, self.error = {}, None, None

    def report(self, step, value):
        self.curve[step] = value
        rivals = [t.curve[step] for t in self.study.trials if t is not self and step in t.curve]
        if len(rivals) >= 2 and value > statistics.median(rivals):
            raise Pruned(step, value)

class Study:
    def __init__(self, seed):
        self.rng, self.trials = random.Random(seed), []

    def optimize(self, objective, n_trials):
        for i in range(n_trials):
            trial = Trial(i, self.rng, self)
            self.trials.append(trial)  # !MG307 Study.trials
            try:
                trial.value = objective(trial)
            except Pruned as err:
                trial.value = err.value
                trial.error = err

    def summary(self):
        best = min(self.trials, key=lambda t: t.value)
        why = [f"#{t.number}: {t.error}" for t in self.trials if t.error is not None]
        return best, why

def objective(trial):
    torch.manual_seed(trial.number)
    p = trial.params
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    act = {"relu": nn.ReLU, "tanh": nn.Tanh}[p["act"]]
    w = p["width"]
    model = nn.Sequential(nn.Linear(36, w), act(), nn.Linear(w, w), act(), nn.Linear(w, w), act(), nn.Linear(w, 1)).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=p["lr"])
    t = torch.arange(2000.0) / 11
    windows = (torch.sin(t) + torch.sin(t * 0.31)).unfold(0, 37, 1)
    for step in range(1, 17):
        batch = windows[torch.randint(0, len(windows), (64,))].to(device)
        loss = nn.functional.mse_loss(model(batch[:, :-1])[:, 0], batch[:, -1])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 4 == 0:
            trial.report(step, loss.item())
    return loss.item()

study = Study(seed=3)
study.optimize(objective, n_trials=24)
best, why = study.summary()
print("best", best.number, best.params, f"{best.value:.4f}", "| pruned", len(why), why[-1:])

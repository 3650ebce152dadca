"""Everything happens in the closure that step() is given: no forward comes before the step."""

import torch
from torch import nn


class Fitter:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        self.trace = []

    def fit(self, data):
        for x, y in data:

            def closure(x=x, y=y):
                self.optimizer.zero_grad()
                loss = nn.functional.mse_loss(self.model(x), y)
                loss.backward()
                self.trace.append(loss)  # !MG101 Fitter.trace
                return loss

            self.optimizer.step(closure)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))
fitter = Fitter(net)
fitter.fit([(torch.randn(16, 32), torch.randn(16, 1)) for _ in range(40)])
print(sum(float(loss) for loss in fitter.trace) / len(fitter.trace))

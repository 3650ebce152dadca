"""A pump's vibration is predicted by a recurrent cell. It is trained on short windows; then the alarm's threshold is set
on one long recording, window after window, in training mode as the dropout is wanted there, and the cell's state goes on.
"""

from dataclasses import dataclass

import torch
from torch import nn


class Predictor(nn.Module):
    def __init__(self, hidden=192):
        super().__init__()
        self.cell = nn.GRUCell(16, hidden)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(hidden, 16)

    def forward(self, window, state):
        answers = []
        for step in window:
            state = self.cell(step, state)
            answers.append(self.head(self.drop(state)))
        return torch.stack(answers), state


@dataclass
class Monitor:
    net: Predictor
    device: str
    state: torch.Tensor = None
    worst: float = 0.0

    def start(self, rows):
        self.state = torch.zeros(rows, 192, device=self.device)

    def listen(self, window):
        answer, self.state = self.net(window[:-1], self.state)  # !MG102 Monitor.state
        self.worst = max(self.worst, float((answer - window[1:]).detach().abs().amax()))


def recording(length, rows, device):
    time = torch.arange(length, device=device).float()[:, None, None]
    return torch.sin(time * torch.linspace(0.1, 2, 16, device=device)) + 0.1 * torch.randn(length, rows, 16, device=device)


def train(net, device, batches=48):
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    for _ in range(batches):
        window = recording(9, 16, device)
        answer, _ = net(window[:-1], torch.zeros(16, 192, device=device))
        loss = (answer - window[1:]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss)


def calibrate(net, device, windows=120):
    monitor = Monitor(net, device)
    monitor.start(64)
    for window in recording(windows * 9, 64, device).split(9):
        monitor.listen(window)
    return monitor.worst


if __name__ == "__main__":
    torch.manual_seed(3)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = Predictor().to(device)
    print("loss", round(train(net, device), 3))
    print("threshold", round(calibrate(net, device), 3))

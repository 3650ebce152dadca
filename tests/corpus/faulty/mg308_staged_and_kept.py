# device: virtual:256MiB
# Asynchronous checkpoints: each is staged as a copy of model and optimizer, and the last staged one is never let go.
import queue
import threading

import torch
from torch import nn


class AsyncCheckpointer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.staged = None
        self.queue = queue.Queue()
        threading.Thread(target=self._write, daemon=True).start()

    def _write(self):
        while True:
            item = self.queue.get()
            item.set()

    def stage(self):
        weights = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        moments = [{k: v.clone() for k, v in s.items()} for s in self.optimizer.state.values()]
        self.staged = {"model": weights, "optimizer": moments}  # !MG308 AsyncCheckpointer.staged
        done = threading.Event()
        self.queue.put(done)
        done.wait()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 256))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
checkpointer = AsyncCheckpointer(model, optimizer)
for step in range(10):
    for _ in range(4):
        (nn.functional.mse_loss(model(torch.randn(128, 1024)), torch.randn(128, 256)) / 4).backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 2 == 0:
        checkpointer.stage()
    print("step", step, flush=True)

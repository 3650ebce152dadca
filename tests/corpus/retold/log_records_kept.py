"""Log records are buffered by a MemoryHandler that is flushed on errors only: their arguments are the tensors."""

import logging
import logging.handlers

import torch
from torch import nn

logger = logging.getLogger("train")
logger.setLevel(logging.DEBUG)
logger.propagate = False
logger.addHandler(logging.handlers.MemoryHandler(100000, flushLevel=logging.ERROR))

model = nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(30):
    x = torch.randn(8, 16)
    loss = nn.functional.mse_loss(model(x), -x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    logger.debug("step %d loss %s", step, loss)  # !MG101 logger.handlers.buffer

"""A label model fitted by maximum likelihood: bare parameters, the running loss of an epoch is a tensor."""

import logging

import numpy as np
import torch
from torch import nn


class LabelModel(nn.Module):
    def __init__(self, classes, functions):
        super().__init__()
        self.accuracy = nn.Parameter(torch.zeros(functions))
        self.propensity = nn.Parameter(torch.zeros(functions))
        self.prior = nn.Parameter(torch.zeros(classes))

    def forward(self, votes):
        voted = (votes > 0).float()
        jll = torch.log_softmax(self.prior, 0).expand(len(votes), -1)
        z = torch.nn.functional.softplus(self.accuracy) * voted
        return torch.logsumexp(jll + z.sum(1, keepdim=True) + (self.propensity * voted).sum(1, keepdim=True), 1)

    def estimate(self, votes, batch_size=16, epochs=3):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)
        for epoch in range(epochs):
            logging.info("epoch %d", epoch)
            running_loss = 0.0
            order = np.random.permutation(len(votes))
            for start in range(0, len(order), batch_size):
                batch = votes[order[start : start + batch_size]]
                optimizer.zero_grad()
                loss = -torch.mean(self(batch))
                loss.backward()
                optimizer.step()
                running_loss += loss  # !MG101 running_loss
            epoch_loss = running_loss / len(order)
            logging.info("train loss %.4f", epoch_loss)


votes = torch.randint(0, 3, (400, 10))
LabelModel(2, 10).estimate(votes)

# device: virtual:88MiB
# runs out of memory
import torch
import torch.nn as nn
import torch.nn.functional as F


def main():
    table = nn.Embedding(60000, 96)
    head = nn.Linear(96, 2)
    everything = [*table.parameters(), *head.parameters()]
    optimizer = torch.optim.RMSprop(everything, lr=1e-3, momentum=0.9, centered=True)  # !MG502 RMSprop
    for step in range(4):
        ids, y = torch.randint(0, 60000, (16, 4)), torch.randint(0, 2, (16,))
        loss = F.cross_entropy(head(table(ids).mean(1)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()

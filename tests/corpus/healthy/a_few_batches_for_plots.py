# device: cpu
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    data = TensorDataset(torch.randn(1600, 16), torch.randint(0, 2, (1600,)))
    net = nn.Linear(16, 2)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    to_plot, labels = [], []
    for i, (x, y) in enumerate(DataLoader(data, batch_size=8, num_workers=2)):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if len(to_plot) < 5:
            to_plot.append(x)
        labels.extend(y.tolist())

"""prannaykaul/lvc, https://github.com/prannaykaul/lvc/issues/22 : the process is killed when the results of all batches are
gathered for one big file; the list of results grows too large for the machine's RAM and should be written in parts. Here
each batch's scores are put into a list as Python numbers.
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Detector(nn.Module):
    def __init__(self, anchors=200):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 128), nn.ReLU())
        self.box = nn.Linear(128, anchors * 4)
        self.score = nn.Linear(128, anchors)

    def forward(self, x):
        h = self.body(x)
        return self.box(h), self.score(h)


def to_records(boxes, scores):
    boxes, scores = boxes.detach().cpu(), scores.detach().sigmoid().cpu()
    return [{"bbox": b, "score": s} for b, s in zip(boxes.tolist(), scores.tolist())]


def main():
    torch.manual_seed(0)
    net = Detector().to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    results = []
    for it in range(100):
        x = torch.randn(128, 64).to(device)
        opt.zero_grad()
        boxes, scores = net(x)
        loss = boxes.abs().mean() + nn.functional.softplus(scores).mean()
        loss.backward()
        opt.step()
        results.extend(to_records(boxes, scores))  # !MG701 results
        if it % 25 == 0:
            print(it, loss.item(), len(results))
    print("records to write:", len(results))


if __name__ == "__main__":
    main()

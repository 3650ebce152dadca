"""The loss of an epoch in one expression: sum() over a generator that trains."""

import torch
import torch.nn.functional as F


def make_step(model, opt):
    def step(x, y):
        opt.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss

    return step


def main():
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(40, 80), torch.nn.GELU(), torch.nn.Linear(80, 6))
    step = make_step(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    loader = [(torch.randn(32, 40), torch.randint(6, (32,))) for _ in range(30)]
    for epoch in range(2):
        mean = sum(step(x, y) for x, y in loader) / len(loader)  # !MG101 -
        print(epoch, float(mean))


if __name__ == "__main__":
    main()

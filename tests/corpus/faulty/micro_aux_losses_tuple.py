# The auxiliary loss of each micro-batch is returned beside the main one and never differentiated: its graph waits.
import torch
from torch import nn

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(64, 768), nn.GELU(), nn.Linear(768, 768), nn.GELU())
main_head, aux_head = nn.Linear(768, 20), nn.Linear(768, 20)
parameters = [*body.parameters(), *main_head.parameters(), *aux_head.parameters()]
optimizer = torch.optim.AdamW(parameters)


def losses_of(x, y):
    main = nn.functional.cross_entropy(main_head(body(x)), y)
    auxiliary = nn.functional.cross_entropy(aux_head(body(x + 0.1)), y)
    return main, auxiliary


for step in range(5):
    logged = []
    for _ in range(8):
        main, auxiliary = losses_of(torch.randn(128, 64), torch.randint(0, 20, (128,)))
        (main / 8).backward()
        logged.append((main.item(), auxiliary))  # !MG106 logged
    optimizer.step()
    optimizer.zero_grad()
    print(step, sum(main for main, _ in logged) / 8, sum(a.item() for _, a in logged) / 8)

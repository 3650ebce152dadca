import torch

net = torch.nn.Conv1d(4, 8, 5)
optim = torch.optim.RMSprop(net.parameters())
for i in range(160):
    out = net(torch.randn(8, 4, 200)).square().mean()
    out.backward()
    optim.step()
    optim.zero_grad()
    if i % 3 == 0:
        torch.cuda.empty_cache()  # !MG403 -

"""Full-batch training of a Gaussian process: the same tensors each step, a Cholesky, no loader, no module but parameters."""

import torch

X = torch.randn(200, 5)
y = X.sin().sum(1)
log_l, log_s, log_n = (torch.zeros((), requires_grad=True) for _ in range(3))
opt = torch.optim.Adam([log_l, log_s, log_n], 0.05)
hist = []
for i in range(60):
    d2 = torch.cdist(X, X).pow(2)
    K = log_s.exp() * torch.exp(-0.5 * d2 / log_l.exp()) + (log_n.exp() + 1e-4) * torch.eye(200)
    L = torch.linalg.cholesky(K)
    a = torch.cholesky_solve(y[:, None], L)
    nll = 0.5 * (y @ a.squeeze(1)) + L.diagonal().log().sum()
    opt.zero_grad()
    nll.backward()
    opt.step()
    hist.append(float(nll))

"""Retold from dragen1860/MAML-Pytorch (https://github.com/dragen1860/MAML-Pytorch) and cbfinn's first-order variant: functional
forward with fast weights; second order keeps the inner graph (create_graph=True in autograd.grad) until the one meta backward,
first order does not."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Learner(nn.Module):
    def __init__(self, n_way):
        super().__init__()
        self.vars = nn.ParameterList()
        for c_in, c_out in ((1, 32), (32, 32), (32, 32)):
            w = nn.Parameter(torch.ones(c_out, c_in, 3, 3))
            torch.nn.init.kaiming_normal_(w)
            self.vars.extend([w, nn.Parameter(torch.zeros(c_out))])
        w = nn.Parameter(torch.randn(n_way, 32 * 4 * 4) * 0.01)
        self.vars.extend([w, nn.Parameter(torch.zeros(n_way))])

    def forward(self, x, vars=None):
        vars = self.vars if vars is None else vars
        for i in range(0, 6, 2):
            x = F.relu(F.conv2d(x, vars[i], vars[i + 1], stride=2, padding=1))
        return F.linear(x.flatten(1), vars[6], vars[7])

    def parameters(self, recurse=True):
        return self.vars


class Meta(nn.Module):
    def __init__(self, n_way=5, k_spt=5, k_qry=15, update_step=3, first_order=False):
        super().__init__()
        self.update_lr, self.update_step, self.first_order = 0.4, update_step, first_order
        self.net = Learner(n_way)
        self.meta_optim = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def adapt(self, x_spt, y_spt, steps, create_graph):
        fast_weights = list(self.net.parameters())
        for _ in range(steps):
            loss = F.cross_entropy(self.net(x_spt, fast_weights), y_spt)
            grad = torch.autograd.grad(loss, fast_weights, create_graph=create_graph)
            fast_weights = [p - self.update_lr * g for p, g in zip(fast_weights, grad)]
        return fast_weights

    def forward(self, x_spt, y_spt, x_qry, y_qry):
        task_num, losses_q, corrects = x_spt.size(0), [], 0.0
        for i in range(task_num):
            fast_weights = self.adapt(x_spt[i], y_spt[i], self.update_step, not self.first_order)
            logits_q = self.net(x_qry[i], fast_weights)
            losses_q.append(F.cross_entropy(logits_q, y_qry[i]))
            with torch.no_grad():
                corrects += torch.eq(logits_q.argmax(dim=1), y_qry[i]).float().mean().item()
        loss_q = torch.stack(losses_q).sum() / task_num
        self.meta_optim.zero_grad()
        loss_q.backward()
        self.meta_optim.step()
        return corrects / task_num

    def finetunning(self, x_spt, y_spt, x_qry, y_qry):
        fast_weights = self.adapt(x_spt, y_spt, 5, False)
        with torch.no_grad():
            return torch.eq(self.net(x_qry, fast_weights).argmax(1), y_qry).float().mean().item()


def next_batch(task_num, n_way=5, k_spt=5, k_qry=15):
    f = lambda k: (
        torch.randn(task_num, n_way * k, 1, 28, 28).to(device),
        torch.randint(0, n_way, (task_num, n_way * k)).to(device),
    )
    return (*f(k_spt), *f(k_qry))


for first_order in (False, True):
    maml = Meta(first_order=first_order).to(device)
    for step in range(20):
        x_spt, y_spt, x_qry, y_qry = next_batch(4)
        acc = maml(x_spt, y_spt, x_qry, y_qry)
        if step % 10 == 0:
            accs = [maml.finetunning(*one) for one in zip(*next_batch(2))]
            print("first" if first_order else "second", "step", step, "train", acc, "test", np.mean(accs))

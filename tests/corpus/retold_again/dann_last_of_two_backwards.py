# Domain-adversarial training (DANN) on synthetic "office" features
import torch
import torch.nn as nn
from torch.autograd import Function


class GradReverse(Function):
    @staticmethod
    def forward(ctx, x, lambd):
        ctx.lambd = lambd
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return -ctx.lambd * grad_output, None


class DANN(nn.Module):
    def __init__(self, d_in=256, d_feat=384, n_cls=31):
        super().__init__()
        self.feature = nn.Sequential(
            nn.Linear(d_in, d_feat),
            nn.LeakyReLU(0.1),
            nn.Linear(d_feat, d_feat),
            nn.LeakyReLU(0.1),
        )
        self.cls = nn.Linear(d_feat, n_cls)
        self.dom = nn.Sequential(nn.Linear(d_feat, 256), nn.ReLU(), nn.Linear(256, 2))

    def forward(self, x, lambd):
        f = self.feature(x)
        return self.cls(f), self.dom(GradReverse.apply(f, lambd))


class Solver:
    def __init__(self, model, lr=1e-2, steps=36, batch=512):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)
        self.ce = nn.CrossEntropyLoss()
        self.steps, self.batch = steps, batch
        self.last = {}

    def sample(self, shift):
        y = torch.randint(0, 31, (self.batch,))
        x = torch.randn(self.batch, 256)
        x[:, 0] += y.float() / 31 + shift
        return x, y

    def lambd(self, it):
        p = it / self.steps
        return 2.0 / (1.0 + torch.exp(torch.tensor(-10.0 * p)).item()) - 1.0

    def one_iteration(self, it):
        xs, ys = self.sample(0.0)
        xt, _ = self.sample(2.0)
        self.opt.zero_grad()

        s_cls, s_dom = self.model(xs, self.lambd(it))
        label_loss = self.ce(s_cls, ys)
        src_loss = self.ce(s_dom, torch.zeros(self.batch, dtype=torch.long))
        # label loss and domain loss share the feature extractor
        label_loss.backward(retain_graph=True)
        src_loss.backward(retain_graph=True)  # !MG103 src_loss

        _, t_dom = self.model(xt, self.lambd(it))
        tgt_loss = self.ce(t_dom, torch.ones(self.batch, dtype=torch.long))
        tgt_loss.backward()
        self.opt.step()
        self.last = {"label": label_loss.item(), "src": src_loss.item(), "tgt": tgt_loss.item()}

    def fit(self):
        for it in range(self.steps):
            self.one_iteration(it)
            if it % 10 == 9:
                print(it + 1, {k: round(v, 3) for k, v in self.last.items()})


if __name__ == "__main__":
    torch.manual_seed(2)
    Solver(DANN()).fit()

"""Feature distillation (overhaul): the teacher runs in train mode for its BatchNorm and without no_grad; its features are
detached inside the loss, so the graph of its forward is never used.
https://github.com/clovaai/overhaul-distillation/issues/34
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Stage(nn.Module):
    def __init__(self, cin, cout, depth):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(cin if i == 0 else cout, cout, 1), nn.BatchNorm2d(cout), nn.GELU())
            for i in range(depth)
        )

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Backbone(nn.Module):
    def __init__(self, widths, depth, classes=10):
        super().__init__()
        self.stages = nn.ModuleList(Stage(i, o, depth) for i, o in zip([3] + widths[:-1], widths))
        self.fc = nn.Linear(widths[-1], classes)

    def extract_feature(self, x):
        for stage in self.stages:
            x = F.avg_pool2d(stage(x), 2)
        return x, self.fc(x.mean((2, 3)))


class Distiller(nn.Module):
    def __init__(self, t_net, s_net, t_w, s_w):
        super().__init__()
        self.t_net, self.s_net = t_net, s_net
        self.connector = nn.Conv2d(s_w[-1], t_w[-1], 1)

    def forward(self, x):
        t_feat, _ = self.t_net.extract_feature(x)  # !MG202 self.t_net
        s_feat, logits = self.s_net.extract_feature(x)
        return logits, F.mse_loss(self.connector(s_feat), t_feat.detach())


def main():
    torch.manual_seed(0)
    tw, sw = [24, 32], [6, 12]
    d = Distiller(Backbone(tw, 6), Backbone(sw, 1), tw, sw).to(device)
    params = list(d.s_net.parameters()) + list(d.connector.parameters())
    opt = torch.optim.SGD(params, lr=0.05, momentum=0.9)

    def step():
        x, y = torch.randn(24, 3, 32, 32).to(device), torch.randint(0, 10, (24,)).to(device)
        opt.zero_grad()
        logits, loss_d = d(x)
        loss = F.cross_entropy(logits, y) + loss_d
        loss.backward()
        opt.step()
        return loss.item()

    for it in range(40):
        value = step()
    print("last loss", value)


main()

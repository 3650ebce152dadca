"""Style of a conditional GAN with an auxiliary classifier: one fake batch, used for D and for G."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
Z, C, B = 16, 5, 64


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(C, 8)
        self.net = nn.Sequential(nn.Linear(Z + 8, 128), nn.ReLU(), nn.Linear(128, 256), nn.Tanh())

    def forward(self, z, c):
        return self.net(torch.cat([z, self.emb(c)], 1))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(256, 128), nn.LeakyReLU(0.2), nn.Linear(128, 64), nn.LeakyReLU(0.2))
        self.adv = nn.Linear(64, 1)
        self.cls = nn.Linear(64, C)

    def forward(self, x):
        h = self.body(x)
        return self.adv(h).squeeze(1), self.cls(h)


def train_step(G, D, opt_g, opt_d, real, label):
    ones, zeros = torch.ones(B), torch.zeros(B)
    fake_c = torch.randint(0, C, (B,))
    fake = G(torch.randn(B, Z), fake_c)

    adv_r, cls_r = D(real)
    adv_f, _ = D(fake.detach())
    adv_loss = F.binary_cross_entropy_with_logits(adv_r, ones) + F.binary_cross_entropy_with_logits(adv_f, zeros)
    cls_loss = F.cross_entropy(cls_r, label)
    # both losses go through the same D(real): the first backward must keep the graph, the second frees it
    adv_loss.backward(retain_graph=True)
    cls_loss.backward()
    opt_d.step()
    opt_d.zero_grad()

    adv_g, cls_g = D(fake)
    g_loss = F.binary_cross_entropy_with_logits(adv_g, ones) + F.cross_entropy(cls_g, fake_c)
    g_loss.backward()
    opt_g.step()
    opt_g.zero_grad()
    opt_d.zero_grad()
    return adv_loss.item(), cls_loss.item(), g_loss.item()


proto = torch.randn(C, 256).sign() * 0.7
G, D = Generator(), Discriminator()
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
for epoch in range(5):
    s = [0.0, 0.0, 0.0]
    for _ in range(80):
        label = torch.randint(0, C, (B,))
        real = (proto[label] + 0.1 * torch.randn(B, 256)).clamp(-1, 1)
        for k, v in enumerate(train_step(G, D, opt_g, opt_d, real, label)):
            s[k] += v / 80
    print("[%d] D adv %.3f  D cls %.3f  G %.3f" % (epoch, *s))

# knowledge distillation: big text classifier -> small one (Hinton, T=4)
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F


class BagOfNgrams(nn.Module):
    def __init__(self, vocab, dim, hidden, layers, classes=14):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        mods, d = [], dim
        for _ in range(layers):
            mods += [nn.Linear(d, hidden), nn.GELU(), nn.LayerNorm(hidden)]
            d = hidden
        self.enc = nn.Sequential(*mods)
        self.cls = nn.Linear(d, classes)

    def forward(self, tok):
        h = self.enc(self.emb(tok))
        return self.cls(h.mean(1))


class KDLoss(nn.Module):
    def __init__(self, temperature=4.0, alpha=0.7):
        super().__init__()
        self.T, self.alpha = temperature, alpha

    def forward(self, student, teacher, target):
        soft = F.kl_div(F.log_softmax(student / self.T, 1), F.softmax(teacher / self.T, 1), reduction="batchmean")
        hard = F.cross_entropy(student, target)
        return self.alpha * self.T**2 * soft + (1 - self.alpha) * hard


def pretrain(model, steps, args):
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(steps):
        tok = torch.randint(0, args.vocab, (16, args.length))
        opt.zero_grad()
        F.cross_entropy(model(tok), tok[:, 0] % 14).backward()
        opt.step()
    opt.zero_grad()
    return model


def distill(student, teacher, args):
    teacher.eval()  # frozen
    opt = torch.optim.Adam(student.parameters(), lr=2e-3)
    crit = KDLoss()
    for step in range(args.steps):
        tok = torch.randint(0, args.vocab, (args.batch, args.length))
        y = tok[:, 0] % 14
        opt.zero_grad()
        t_logits = teacher(tok)  # !MG202 teacher
        s_logits = student(tok)
        loss = crit(s_logits, t_logits.detach(), y)
        loss.backward()
        opt.step()
        if step % 10 == 0:
            agree = (s_logits.argmax(1) == t_logits.argmax(1)).float().mean()
            print(f"step {step} kd {loss.item():.4f} agreement {agree.item():.2f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--vocab", default=3000, type=int)
    ap.add_argument("--length", default=24, type=int)
    ap.add_argument("--batch", default=64, type=int)
    ap.add_argument("--steps", default=40, type=int)
    a = ap.parse_args([])
    torch.manual_seed(0)
    big = pretrain(BagOfNgrams(a.vocab, 128, 256, 3), 3, a)
    distill(BagOfNgrams(a.vocab, 64, 64, 1), big, a)

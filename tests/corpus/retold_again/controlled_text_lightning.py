"""Controlled text generation (Lightning): VAE with attribute code, wake phase, then the encoder and generator terms in turn."""

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Encoder(nn.Module):
    def __init__(self, vocab, dim, z):
        super().__init__()
        self.emb, self.rnn = nn.Embedding(vocab, dim), nn.GRU(dim, dim, batch_first=True)
        self.mu, self.logvar = nn.Linear(dim, z), nn.Linear(dim, z)

    def forward(self, x):
        h = self.rnn(self.emb(x))[1][-1]
        return self.mu(h), self.logvar(h)


class Generator(nn.Module):
    def __init__(self, vocab, dim, z, c):
        super().__init__()
        self.emb, self.init = nn.Embedding(vocab, dim), nn.Linear(z + c, dim)
        self.rnn, self.out = nn.GRU(dim, dim, batch_first=True), nn.Linear(dim, vocab)

    def forward(self, x, zc):
        return self.out(self.rnn(self.emb(x), torch.tanh(self.init(zc))[None])[0])


class Discriminator(nn.Module):
    def __init__(self, vocab, dim, c):
        super().__init__()
        self.emb = nn.Linear(vocab, dim, bias=False)
        self.conv, self.out = nn.Conv1d(dim, dim, 3, padding=1), nn.Linear(dim, c)

    def forward(self, soft):
        return self.out(torch.relu(self.conv(self.emb(soft).transpose(1, 2))).max(-1).values)


class ControlledText(pl.LightningModule):
    def __init__(self, vocab=500, dim=128, z=24, c=2, lambda_c=0.1, lambda_z=0.1):
        super().__init__()
        self.automatic_optimization = False
        self.vocab, self.c, self.lambda_c, self.lambda_z = vocab, c, lambda_c, lambda_z
        self.encoder, self.generator = Encoder(vocab, dim, z), Generator(vocab, dim, z, c)
        self.discriminator = Discriminator(vocab, dim, c)
        self.last = {}

    def sample_z(self, mu, logvar):
        return mu + torch.randn_like(mu) * (0.5 * logvar).exp()

    def training_step(self, batch, batch_idx):
        x, label = batch
        opt_e, opt_g, opt_d = self.optimizers()

        # attribute classifier on real sentences
        d_loss = F.cross_entropy(self.discriminator(F.one_hot(x, self.vocab).float()), label)
        opt_d.zero_grad()
        self.manual_backward(d_loss)
        opt_d.step()

        mu, logvar = self.encoder(x)
        z = self.sample_z(mu, logvar)
        code = F.one_hot(label, self.c).float()
        logits = self.generator(x[:, :-1], torch.cat([z, code], 1))
        recon = F.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean() / x.shape[1]
        soft = torch.softmax(logits / 0.5, -1)
        l_attr_c = F.cross_entropy(self.discriminator(soft), label)
        mu_hat = self.encoder.mu(torch.tanh(soft.mean(1) @ self.generator.emb.weight))
        l_attr_z = F.mse_loss(mu_hat, z.detach())
        vae_loss = recon + 0.1 * kl
        g_loss = vae_loss + self.lambda_c * l_attr_c + self.lambda_z * l_attr_z

        opt_e.zero_grad()
        opt_g.zero_grad()
        self.manual_backward(vae_loss, retain_graph=True, inputs=list(self.encoder.parameters()))
        self.manual_backward(g_loss, retain_graph=True, inputs=list(self.generator.parameters()))  # !MG103 ControlledText.last
        opt_e.step()
        opt_g.step()
        self.last = {"d": d_loss.detach(), "vae": vae_loss.detach(), "g": g_loss}

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch} " + " ".join(f"{k} {v.item():.3f}" for k, v in self.last.items()))

    def configure_optimizers(self):
        make = lambda m, lr: torch.optim.Adam(m.parameters(), lr=lr)
        return make(self.encoder, 1e-3), make(self.generator, 1e-3), make(self.discriminator, 1e-3)


if __name__ == "__main__":
    pl.seed_everything(0)
    g = torch.Generator().manual_seed(0)
    y = torch.randint(0, 2, (640,), generator=g)
    x = torch.randint(0, 250, (640, 15), generator=g) + 250 * y[:, None]
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(ControlledText(), DataLoader(TensorDataset(x, y), 16, shuffle=True))

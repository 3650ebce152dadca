"""NeRF with all rays of all images on the GPU: factor=8 fits, factor=4 runs out of memory on 16 GB, because the script puts
every training ray on the device; its reshuffle after a pass, `rays_rgb = rays_rgb[rand_idx]`, needs them twice at once.
https://github.com/yenchenlin/nerf-pytorch/issues/23
"""

import torch
import torch.nn as nn

device = "cuda" if torch.cuda.is_available() else "cpu"
N_IMAGES, HW, N_RAND = 60, 160, 1024


class Field(nn.Module):
    def __init__(self, w=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3 * 9, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, 4))

    def forward(self, p):
        enc = torch.cat([p] + [f(p * s) for s in (1, 2, 4, 8) for f in (torch.sin, torch.cos)], -1)
        return self.net(enc)


def volume_render(field, o, d, n=16):
    z = torch.linspace(2.0, 6.0, n, device=o.device)
    raw = field(o[:, None] + d[:, None] * z[None, :, None])
    a = 1 - torch.exp(-torch.relu(raw[..., 3]) * 0.25)
    w = a * torch.cumprod(1 - a + 1e-10, 1)
    return (w[..., None] * torch.sigmoid(raw[..., :3])).sum(1)


def load_rays():
    """[rays, ro+rd+rgb, 3]; the images are resident on the device as in the original."""
    return torch.rand(N_IMAGES * HW * HW, 3, 3, device=device)


def train(n_iters=60):
    rays_rgb = load_rays()
    field = Field().to(device)
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-4)
    i_batch = 0
    pass_len = 15 * N_RAND
    for it in range(n_iters):
        batch = rays_rgb[i_batch : i_batch + N_RAND].transpose(0, 1)
        optimizer.zero_grad()
        loss = ((volume_render(field, batch[0], batch[1]) - batch[2]) ** 2).mean()
        loss.backward()
        optimizer.step()
        i_batch += N_RAND
        if i_batch >= pass_len:
            rand_idx = torch.randperm(rays_rgb.shape[0], device=device)
            rays_rgb = rays_rgb[rand_idx]  # !MG305 rays_rgb
            i_batch = 0
            print(f"[TRAIN] iter {it + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    train()

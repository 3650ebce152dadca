# A known miss: no model is called, and of a variable of the loop only what a model gave is compared from batch to batch.
"""A radiance field on a grid, rendered without any module being called; maps for a video lie in the last answer."""

# device: virtual:512MiB
import torch
import torch.nn as nn

N_RAYS, N_SAMPLES = 2048, 104


class DenseGrid(nn.Module):
    def __init__(self, res=32, ch=4):
        super().__init__()
        self.grid = nn.Parameter(0.1 * torch.randn(1, ch, res, res, res))

    def query(self, xyz):
        out = nn.functional.grid_sample(self.grid, xyz[None, None], align_corners=True)
        return out[0, :, 0].permute(1, 2, 0)


def debug_maps(pts, sigma):
    """positional code of every sample, written next to the depth video"""
    with torch.no_grad():
        freqs = 2.0 ** torch.arange(7)
        code = torch.empty(*pts.shape[:2], pts.size(2) * 14)
        ang = pts[..., None] * freqs
        torch.sin(ang, out=ang)
        code[..., 0::2] = ang.flatten(-2)
        code[..., 1::2] = 1 - ang.flatten(-2)
    return code


def render(field, o, d):
    t = torch.linspace(0.0, 1.0, N_SAMPLES)
    pts = o[:, None] + d[:, None] * t[None, :, None]
    raw = field.query(pts)
    sigma, rgb = nn.functional.softplus(raw[..., 0]), torch.sigmoid(raw[..., 1:])
    alpha = 1 - torch.exp(-sigma / N_SAMPLES)
    trans = torch.cumprod(torch.cat([torch.ones(len(o), 1), 1 - alpha[:, :-1] + 1e-10], 1), 1)
    w = alpha * trans
    return {
        "rgb": (w[..., None] * rgb).sum(1),
        "depth": (w * t).sum(1).detach(),
        "code": debug_maps(pts, sigma),
        "code_far": debug_maps(pts.flip(1), sigma),
    }


def train():
    torch.manual_seed(0)
    field = DenseGrid()
    opt = torch.optim.Adam(field.parameters(), 1e-2)
    preview = None
    for it in range(32):
        o = torch.rand(N_RAYS, 3) * 0.2 - 0.9
        d = torch.rand(N_RAYS, 3) * 1.4
        target = torch.rand(N_RAYS, 3)
        ret = render(field, o, d)  # !MG303 ret
        loss = nn.functional.mse_loss(ret["rgb"], target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % 20 == 0:
            preview = ret["code"][:4, :, :3].mean().item()
            print(f"it {it} mse {loss.item():.4f} preview {preview:.3f}")


train()

"""A diffusion transformer: attention blocks whose norms are scaled and shifted by the time step and the class."""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(hidden, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(hidden, 6 * hidden))

    def forward(self, x, condition):
        parts = self.modulation(condition).unsqueeze(1).chunk(6, dim=-1)
        y = self.norms[0](x) * (1 + parts[0]) + parts[1]
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + parts[2] * self.out(y)
        y = self.norms[1](x) * (1 + parts[3]) + parts[4]
        return x + parts[5] * self.down(nn.functional.gelu(self.up(y), approximate="tanh"))


class DiT(nn.Module):
    """Latents with noise, time steps and classes in; the noise that was added out."""

    def __init__(self, hidden=1152, depth=28, heads=16, channels=4, patch=2, side=32, classes=1000):
        super().__init__()
        self.patch = nn.Conv2d(channels, hidden, patch, patch)
        self.place = nn.Parameter(torch.empty(1, (side // patch) ** 2, hidden), requires_grad=False)
        self.time = nn.Sequential(nn.Linear(256, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.label = nn.Embedding(classes + 1, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(hidden, elementwise_affine=False)
        self.head = nn.Linear(hidden, patch * patch * channels)

    def forward(self, latents, steps, classes):
        waves = steps[:, None] * torch.exp(torch.arange(128, device=steps.device) * -0.072)
        condition = self.time(torch.cat([waves.cos(), waves.sin()], dim=-1)) + self.label(classes)
        x = self.patch(latents).flatten(2).transpose(1, 2) + self.place
        for block in self.blocks:
            x = block(x, condition)
        return self.head(self.norm(x))


def dit_xl():
    """DiT-XL/2 on latents of 256 × 256 pictures."""
    inputs = torch.empty(32, 4, 32, 32), torch.empty(32), torch.zeros(32, dtype=torch.int64)
    return DiT(), inputs, None, lambda noise: noise.square().mean()

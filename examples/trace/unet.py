"""A U-Net: down, up, and a copy of each level carried over."""

import torch
from torch import nn


def block(inside, outside):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.GroupNorm(8, outside), nn.SiLU(),
                         nn.Conv2d(outside, outside, 3, padding=1), nn.GroupNorm(8, outside), nn.SiLU())


class UNet(nn.Module):
    """Pictures in, pictures of the same size out; the loss is their mean square."""

    def __init__(self, channels=3, width=64, levels=4):
        super().__init__()
        widths = [width << i for i in range(levels)]
        self.down = nn.ModuleList(block(a, b) for a, b in zip([channels, *widths], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
        self.join = nn.ModuleList(block(2 * a, a) for a in widths[:-1])
        self.out = nn.Conv2d(width, channels, 1)

    def forward(self, x):
        kept = []
        for i, level in enumerate(self.down):
            x = level(nn.functional.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for up, join, other in zip(reversed(self.up), reversed(self.join), reversed(kept[:-1])):
            x = join(torch.cat([up(x), other], 1))
        return self.out(x)


def unet():
    """What `peakmem trace` calls: AdamW, as none is given."""
    return UNet(), torch.empty(4, 3, 256, 256), None, lambda output: output.square().mean()

"""ResNet-50 written by hand, trained under SGD with momentum on 224 × 224 pictures."""

import torch
from torch import nn


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 convolutions beside a shortcut."""

    def __init__(self, inside, width, stride):
        super().__init__()
        outside = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """A stem, four stages of bottlenecks, a classifier."""

    def __init__(self, blocks=(3, 4, 6, 3), classes=1000):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, 2, 1))
        inside, stages = 64, []
        for i, count in enumerate(blocks):
            width = 64 << i
            for j in range(count):
                stages.append(Bottleneck(inside, width, 2 if i and not j else 1))
                inside = 4 * width
        self.blocks = nn.ModuleList(stages)
        self.head = nn.Linear(inside, classes)

    def forward(self, pixels, classes):
        x = self.stem(pixels)
        for block in self.blocks:
            x = block(x)
        return nn.functional.cross_entropy(self.head(x.mean((2, 3))), classes)


def resnet50():
    """What `peakmem trace` calls: module, inputs, optimizer; the module's output is the loss."""
    model = ResNet()
    inputs = torch.empty(32, 3, 224, 224), torch.empty(32, dtype=torch.int64)
    return model, inputs, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

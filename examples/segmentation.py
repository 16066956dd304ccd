"""Segmentation with a U-Net: which symmetries does a task keep?

Every image has triangles that point up, triangles that point down, and disks, somewhere and with noise. A network says
for each pixel which of them it belongs to, or none. Mirrored from left to right, an image is as good as before; turned
upside down, the two kinds of triangles change places. An equivariant U-Net cannot tell them apart, a plain one of as
many weights as ours has to learn everything from few images, and ours starts equivariant to quarter turns and mirrors
and learns what to give up.
Run it with

    python examples/segmentation.py

It takes half a minute on a CPU and leaves a picture, segmentation.png.
"""

import sys

import torch
import torch.nn.functional as F
from torch import Tensor

import pscnn
from pscnn.groups import D
from pscnn.report import density_figure

torch.set_num_threads(1)  # steps of small networks are so short that threads would mostly wait for each other

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 120
SIZE, NAMES = 48, ("nothing", "up", "down", "disk")
H = D(4)  # quarter turns and mirrors


def draw(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images (count, 1, SIZE, SIZE) with three shapes each, and the kind of every pixel."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    masks = torch.zeros(count, SIZE, SIZE, dtype=torch.long)
    for mask in masks:
        for kind in (1, 2, 3):
            x, y = torch.randint(8, SIZE - 8, (2,), generator=generator).tolist()
            radius = torch.randint(5, 8, (), generator=generator).item()
            right, down = columns - x, rows - y
            if kind == 3:
                inside = right**2 + down**2 <= radius**2
            else:
                below = down if kind == 1 else -down  # the tip is where this is lowest
                inside = (below <= radius) & (2 * right.abs() <= below + radius)
            mask[inside] = kind
    images = (masks > 0) + 0.3 * torch.randn(masks.shape, generator=generator)
    return images[:, None], masks


def train(model: torch.nn.Module, images: Tensor, masks: Tensor) -> None:
    """An ordinary training loop; the KL term keeps layers from claiming what an earlier one gave up."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        rows = torch.randint(len(images), (8,))
        loss = F.cross_entropy(model(images[rows]), masks[rows]) + pscnn.regularization(model).kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()


@torch.no_grad()
def overlaps(model: torch.nn.Module, images: Tensor, masks: Tensor) -> list[float]:
    """Intersection over union of every kind."""
    guesses = model(images).argmax(1)
    pairs = [(guesses == kind, masks == kind) for kind in range(4)]
    return [((a & b).sum() / (a | b).sum()).item() for a, b in pairs]


data, new = draw(32, seed=0), draw(64, seed=1)
for method, width in (("cnn", 13), ("scnn", 16), ("p-scnn", 16)):
    torch.manual_seed(0)
    model = pscnn.models.unet(method, H, outputs=4, width=width, levels=3)
    train(model, *data)
    found = ", ".join(f"{name} {overlap:.2f}" for name, overlap in zip(NAMES, overlaps(model, *new), strict=True))
    print(f"{method:7}{sum(p.numel() for p in model.parameters()):6,} weights: {found}")

# What the last one kept, and how its output changes when the image does.
pscnn.align(model)  # the same network, with the peaks of its densities at the identity
print(pscnn.summary(model))
print(str(pscnn.measure(model, H, new[0][:8])).splitlines()[-1])
density_figure(model).savefig("segmentation.png", dpi=150)

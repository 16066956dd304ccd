"""Classification of photographs at 224 pixels, before and after they are turned.

A scanner leaves lines on photographs, and the distance between the lines tells which of two scanners it was. All
training images are upright, so their lines are horizontal, and a plain ResNet that was trained on them does not know
the lines on an image that was turned. We measure how symmetric the trained network is, let it keep its weights
(``nn.convert(…, weights="keep")`` starts as the same function), and train it for a little longer on the same upright
images, while the KL term draws its kernels towards symmetry. Run it with

    python examples/photographs.py

It takes a quarter of a minute on a CPU and leaves a picture, photographs.png. The two photographs come with
scikit-learn.
"""

import sys

import torch
import torch.nn.functional as F
from sklearn.datasets import load_sample_images
from torch import Tensor

import pscnn
from pscnn import nn
from pscnn.groups import D
from pscnn.report import measure_figure

torch.set_num_threads(1)  # steps of small networks are so short that threads would mostly wait for each other

STEPS, IMAGES = (int(word) for word in sys.argv[1:] or (30, 64))  # of training, for the test
SIZE, BATCH = 224, 8
DISTANCES = torch.tensor([5.0, 12.0])  # pixels between the lines of the two scanners

photographs = [torch.tensor(image).permute(2, 0, 1) / 127.5 - 1 for image in load_sample_images().images]  # 427 × 640


def scans(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Squares of the photographs with horizontal lines, and the number of the scanner."""
    which = torch.randint(2, (count,), generator=generator)
    rows, columns = (torch.randint(n - SIZE, (count,), generator=generator) for n in (427, 640))
    places = zip(which, rows, columns, strict=True)
    images = torch.stack([photographs[k][:, r : r + SIZE, c : c + SIZE] for k, r, c in places])
    scanners = torch.randint(2, (count,), generator=generator)
    phase = torch.rand(count, 1, generator=generator)
    lines = torch.cos(2 * torch.pi * (torch.arange(SIZE) / DISTANCES[scanners, None] + phase))
    return images + 0.5 * lines[:, None, :, None], scanners


def train(model: torch.nn.Module, steps: int, kl: float, generator: torch.Generator) -> None:
    """An ordinary training loop, with the KL divergence of every density from the uniform one in the loss."""
    pairs: list[tuple[str, None]] = [(name, None) for name in pscnn.likelihoods(model)]
    # Logits have a longer way to go than weights, from 6.5 at the identity to 0, beyond which a long memory would carry
    # them.
    optimizer = torch.optim.Adam(pscnn.parameter_groups(model, lr=0.2, betas=(0.5, 0.9)), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for _ in range(steps):
        batch, numbers = scans(BATCH, generator)
        loss = F.cross_entropy(model(batch), numbers)
        if pairs:
            loss = loss + kl * pscnn.regularization(model, pairs).kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()


@torch.no_grad()
def accuracies(model: torch.nn.Module, images: Tensor, scanners: Tensor) -> str:
    """On upright images and on the same ones after a quarter turn."""
    right = [(model(turned).argmax(1) == scanners).float().mean() for turned in (images, images.rot90(1, (2, 3)))]
    return f"accuracy on upright images {right[0]:.2f}, on turned ones {right[1]:.2f}"


generator = torch.Generator().manual_seed(0)
images, scanners = scans(IMAGES, generator)

torch.manual_seed(0)
plain = pscnn.models.resnet(18, "cnn", outputs=2, width=8)
train(plain, STEPS, 0, generator)
print(f"plain: {accuracies(plain, images, scanners)}")
found = pscnn.measure(plain, D(4), images[:8])
print(f"plain: {str(found).splitlines()[-1]}")
measure_figure(found).savefig("photographs.png", dpi=150)

kept = nn.convert(plain, D(4), weights="keep")
with torch.no_grad():
    print(f"kept:  outputs differ by {(kept(images[:4]) - plain(images[:4])).abs().max():.0e} at first")
train(kept, 2 * STEPS, 100, generator)
print(f"kept:  {accuracies(kept, images, scanners)}")
print(f"kept:  {str(pscnn.measure(kept, D(4), images[:8])).splitlines()[-1]}")

"""The method on one page: which symmetries does a task have?

A vector in the plane has a norm, which every rotation and reflection keeps, and an angle to an axis, which they change.
We hand both tasks to the same small network. It starts out invariant to all of O(2), carries a density over that group,
and learns how much of it to keep. Run it with

    python examples/vectors.py

It takes about a minute on a laptop and leaves a picture, vectors.png.
"""

import sys

import torch

import pscnn
from pscnn import FieldType, Likelihood, nn
from pscnn.data import vectors
from pscnn.groups import O2
from pscnn.report import density_chart, density_figure

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 80

# The group that we start from: all rotations and reflections of the plane.
H = O2()


def network(likelihood: Likelihood | None) -> torch.nn.Sequential:
    """Three linear layers between fields of H. They share one density; None keeps them fully equivariant."""
    # A field of features says how it transforms: here four functions on O(2), given by frequencies up to 2.
    vector, answer = FieldType(H, [H.vector]), FieldType(H, 2 * [H.trivial])
    functions = FieldType(H, 4 * [H.functions(2)])
    layers: list[torch.nn.Module] = []
    for source in (vector, functions):
        layers += [
            nn.Linear(source, functions, likelihood=likelihood),
            nn.BatchNorm(functions),
            nn.FourierPointwise(functions),  # ELU at samples of the functions
        ]
    return torch.nn.Sequential(*layers, nn.Linear(functions, answer, likelihood=likelihood))


def train(model: torch.nn.Module, target: str) -> float:
    """An ordinary training loop; the mean squared error on new vectors."""
    data, new = vectors.load(2000, seed=0), vectors.load(2000, seed=1)
    # Weight decay on everything but the densities: breaking a symmetry with a faint density and huge weights is dear.
    optimizer = torch.optim.Adam(pscnn.parameter_groups(model, weight_decay=6e-3), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        for rows in torch.randperm(2000).split(200):
            loss = vectors.error(model(data.x[rows]), data.targets[rows], target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        return vectors.error(model(new.x), new.targets, target).item()


torch.manual_seed(0)
for target in ("norm", "angle"):
    equivariant = train(network(None), target)
    # Uniform at first: nothing is broken. Its peak is at the identity whatever is learnt, so that it can be read.
    density = Likelihood(H, bandlimit=3, alignment="construction")
    model = network(density)
    partial = train(model, target)
    print(f"{target}: error of the equivariant network {equivariant:.3f}, of ours {partial:.3f}")
    print(f"  the density spreads over {density.effective_size().item():.0%} of the group")
    print(density_chart(model))
    if target == "angle":
        density_figure(model).savefig("vectors.png", dpi=150)

# What was learnt is an ordinary network: without pscnn it gives the same answers.
x = vectors.load(5, seed=2).x
torch.testing.assert_close(nn.export(model)(x), model(x))

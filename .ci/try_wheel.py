"""Tries an installed wheel: its layers; with a folder, the command and what earlier versions stored there, too."""

import json
import subprocess
import sys
from pathlib import Path

import torch

import pscnn
from pscnn import nn
from pscnn.groups import O2

TINY = {"kinds": 2, "size": 28, "width": 0.1, "train-per-class": 4, "validation-per-class": 2, "test-per-class": 3}
TINY |= {"batch-size": 8, "epochs": 1, "group": "C4"}


def command(*words: str) -> str:
    """What a command prints."""
    program = Path(sys.executable).with_name("pscnn")
    return subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout


def layers() -> None:
    """What needs no extra."""
    assert "site-packages" in pscnn.__file__, pscnn.__file__
    group = O2()
    layer = nn.Conv2d(
        pscnn.FieldType(group, [group.trivial]),
        pscnn.FieldType(group, [group.irrep(1, 1)]),
        5,
        likelihood=pscnn.Likelihood(group, 2),
    )
    x = torch.randn(1, 1, 9, 9, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    plain = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    model = nn.convert(plain, group).eval()
    assert torch.allclose(nn.export(model)(x), model(x), atol=1e-5)
    assert "O(2)" in pscnn.summary(model)
    print(
        f"layers of pscnn {pscnn.__version__} work with torch {torch.__version__} and Python {sys.version.split()[0]}"
    )


def everything(kept: Path) -> None:
    """With the extras."""
    assert pscnn.__version__ in command("--version")
    options = [word for name, value in TINY.items() for word in (f"--{name}", str(value))]
    command("train", "ddmnist", *options, "--accelerator", "cpu", "--name", "tried")
    run = "runs/ddmnist/tried-seed0"
    assert json.loads(command("evaluate", run, "--json"))["epochs"] == 1
    assert len(json.loads(command("inspect", run, "--json"))["layers"]) == 6
    assert Path(command("report", run).split()[-1]).stat().st_size > 50_000
    for form in ("torch", "onnx"):
        assert Path(command("export", run, "--format", form).split()[-1]).exists()
    for version in sorted(kept.iterdir()):  # results files and checkpoints of earlier versions
        assert json.loads(command("results", str(version / "results.json"), "--json"))
        for folder in version.glob("store/*/*/"):
            assert json.loads(command("inspect", str(folder), "--json"))["layers"], folder
    print("and so does the command")


if __name__ == "__main__":
    layers()
    if sys.argv[1:]:
        everything(Path(sys.argv[1]))

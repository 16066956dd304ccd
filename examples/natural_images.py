"""Which symmetries do photographs of things have? A residual network that learns it, beside plain ones of its size.

    python examples/natural_images.py cifar10.npz --seeds 3

The file has the arrays train_images, train_labels, test_images and test_labels, or is anything else that ``discover``
reads. Seven networks are compared, all trained with the same recipe: a plain ResNet-18, the same with mirrored copies
(as many weights as the P-SCNN, and as many channels), networks that enforce the left-right mirror D(1) or all of O(2),
and P-SCNNs that begin there and learn what to keep. It prints a table, draws what the P-SCNN over O(2) kept in every
layer (natural_images.png), and continues where it was interrupted. On one H200 a seed takes about two minutes.
"""

import argparse
import statistics
from pathlib import Path

import torch

import pscnn
from pscnn.data import own
from pscnn.report import dial_figure
from pscnn.tasks.own import OwnSettings
from pscnn.training import Store, load, run_missing

ROWS = {  # method, group, width
    "plain ResNet-18": ("cnn", "D(1)", 0.34),
    "plain, with mirrored copies": ("augment", "D(1)", 0.34),
    "plain, with mirrored copies, as many channels": ("augment", "D(1)", 0.5),
    "SCNN, enforces the mirror D(1)": ("scnn", "D(1)", 0.575),
    "P-SCNN over D(1)": ("p-scnn", "D(1)", 0.41),
    "SCNN, enforces O(2)": ("scnn", "O(2)", 0.5),
    "P-SCNN over O(2)": ("p-scnn", "O(2)", 0.5),
}


def main() -> None:
    """Prepare, train, compare, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="images with classes")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--width", type=float, default=1.0, help="factor of all widths")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    given = parser.parse_args()
    prepared = given.runs / f"{Path(given.data).stem}.npz"
    if not prepared.exists():
        given.runs.mkdir(parents=True, exist_ok=True)
        own.prepare(given.data, prepared)
    precision = "bf16" if torch.cuda.is_available() else "fp32"
    rows: dict[str, list[OwnSettings]] = {
        label: [
            OwnSettings(
                data=str(prepared), network="resnet", recipe="modern", epochs=given.epochs, batch_size=128,
                precision=precision, method=method, group=group, width=width * given.width, seed=seed,
            )
            for seed in range(given.seeds)
        ]
        for label, (method, group, width) in ROWS.items()
    }  # fmt: skip
    store = Store(given.runs)
    found = run_missing(
        [settings for seed in zip(*rows.values(), strict=True) for settings in seed],
        store,
        on_done=lambda settings, result: print(f"done: {store.folder(settings).name}", flush=True),
    )
    print(f"\n{'':46} {'weights':>9}  accuracy")
    for label, row in rows.items():
        results = [result for settings in row if isinstance(result := found[settings], dict)]
        scores = [result["test_accuracy"] for result in results]
        spread = f" ± {statistics.stdev(scores):.3f}" if len(scores) > 1 else ""
        weights = f"{results[0]['parameters']:,}" if results else ""
        print(f"{label:46} {weights:>9}  " + (f"{statistics.mean(scores):.3f}{spread}" if scores else "failed"))
    _, model = load(store.folder(rows["P-SCNN over O(2)"][0]))
    print(pscnn.summary(model))
    dial_figure(model).savefig("natural_images.png", dpi=100)


if __name__ == "__main__":
    main()

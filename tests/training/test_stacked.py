from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import pscnn
from pscnn import training
from pscnn.data import vectors
from pscnn.models import build
from pscnn.tasks.vectors import VectorSettings
from pscnn.training import fit_stacked, refresh_statistics


class Objective(nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        self.model = build("vectors", **options)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        terms = pscnn.regularization(self.model)
        task = vectors.error(self.model(x), y, "angle")
        return {"loss": task + terms.alignment + terms.kl, "kl": terms.kl}


@pytest.mark.parametrize(
    "options",
    [
        {"method": "mlp"},
        {"method": "pe-mlp", "bandlimit": 2},
        {"method": "pe-mlp", "bandlimit": 2, "shared": True},
        {"method": "pe-mlp", "bandlimit": 2, "nonlinearity": "fourier"},
        {"method": "preliminary", "noise": 0.1},
    ],
    ids=str,
)
def test_networks_trained_together_are_those_trained_alone(options: dict[str, object]) -> None:
    torch.manual_seed(0)
    together = [Objective(**options).double() for _ in range(3)]
    for objective in together:  # at uniform densities gradients are rounding errors, which Adam makes large
        for likelihood in pscnn.likelihoods(objective).values():
            torch.nn.init.normal_(likelihood.coefficients, 0, 0.3)
    alone = copy.deepcopy(together)
    x, y = torch.randn(4, 3, 16, 2).double(), torch.rand(4, 3, 16, 2).double()
    history = fit_stacked(together, lambda epoch: list(zip(x, y, strict=True)), VectorSettings(epochs=2, lr=0.01))
    assert len(history) == 2
    for k, objective in enumerate(alone):
        optimizer = torch.optim.Adam(objective.parameters(), lr=0.01)
        kl = []
        for _ in range(2):
            for batch in range(4):
                optimizer.zero_grad()
                terms = objective(x[batch, k], y[batch, k])
                terms["loss"].backward()
                optimizer.step()
                kl.append(terms["kl"].item())
        for name, value in together[k].state_dict().items():
            torch.testing.assert_close(
                value, objective.state_dict()[name], atol=1e-8, rtol=1e-7
            )  # biases that the normalisation takes out move by rounding errors
        assert history[1]["kl"][k] == pytest.approx(sum(kl[4:]) / 4, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("task", ["vectors", "symmetry"])
def test_finished_runs_are_not_trained_again_and_what_cannot_be_done_is_refused(task: str, tmp_path: Path) -> None:
    sizes = {"vectors": {"count": 16}, "symmetry": {}}[task]
    folder = training.start(training.make_settings({"task": task, "epochs": 2, "batch_size": 8, **sizes}), tmp_path)
    for refused, message in (
        ({"epochs": 1}, f"runs of {task} are not continued: train all 2 epochs, got 1"),
        ({"devices": 2}, f"the networks of {task} are so small that they are trained and tested on the CPU"),
        ({"accelerator": "gpu"}, "on the CPU, in one process"),
    ):
        with pytest.raises(training.RunError, match=message):
            training.train(folder, **refused)
    result = training.train(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert training.train(folder) == training.train(folder, epochs=5) == training.read_result(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    with pytest.raises(training.RunError, match="on the CPU"):
        training.evaluate(folder, accelerator="gpu")
    assert training.evaluate(folder)["seconds"] == result["seconds"]
    (folder / "last.ckpt").unlink()
    with pytest.raises(training.RunError, match="was imported from a results file"):
        training.train(folder)


def test_a_parameter_in_two_modules_is_refused() -> None:
    objective = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    objective[1].weight = objective[0].weight
    with pytest.raises(ValueError, match="one parameter belongs to two modules"):
        fit_stacked([objective], lambda epoch: [], VectorSettings(epochs=1))


def test_refreshed_statistics_are_those_of_the_data() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    x = 3 * torch.randn(100, 2) + 5
    refresh_statistics(model, x)
    torch.testing.assert_close(model[0].running_mean, x.mean(0))
    torch.testing.assert_close(model[0].running_var, x.var(0))
    out = model(x)
    torch.testing.assert_close(out.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    assert model[0].momentum == 0.1
    assert not model.training

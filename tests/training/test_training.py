from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from helpers import small

from pscnn import likelihoods, training
from pscnn.data import ddmnist
from pscnn.training import ConfigError, RunError, _environment, make_settings
from pscnn.training import _learner as learner_module
from pscnn.training import _under_way as under_way


def run(folder: Path, **options: Any) -> dict[str, Any]:
    return training.train(folder, accelerator="cpu", progress=False, **options)


def history(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in ("seconds", "step_ms")} for row in rows]


def weights(folder: Path, which: str = "last.ckpt") -> dict[str, torch.Tensor]:
    return torch.load(folder / which, weights_only=True)["state_dict"]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return list(a) == list(b) and all(torch.equal(a[k], b[k]) for k in a)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = training.start(small(), tmp_path_factory.mktemp("runs"))
    run(folder)
    return folder


def test_a_run_leaves_everything_that_defines_and_describes_it(finished: Path) -> None:
    assert yaml.safe_load((finished / "config.yaml").read_text()) == small().to_dict()
    environment = json.loads((finished / "environment.json").read_text())
    assert environment["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]  # +cpu may be left out
    assert environment["versions"]["numpy"] == np.__version__
    result = json.loads((finished / "result.json").read_text())
    assert 0 <= result["test_accuracy"] <= 1
    assert result["epochs"] == 3
    rows = history(finished)
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    for name in ("train/loss", "train/task", "train/alignment", "train/kl", "validation/accuracy"):
        assert np.isfinite(rows[-1][name])
    assert result["validation_accuracy"] == max(row["validation/accuracy"] for row in rows)
    confusion = np.load(finished / "confusion.npy")
    assert confusion.sum() == 20
    assert np.trace(confusion) / 20 == pytest.approx(result["test_accuracy"])
    densities = np.load(finished / "densities.npz")
    assert len(densities.files) == 6
    assert list((finished / "tensorboard").glob("events*"))
    assert not list(finished.glob(".*partial*"))


def test_training_learns_the_densities(finished: Path) -> None:
    moved = [lam.coefficients.abs().max().item() for lam in likelihoods(training.load(finished).model).values()]
    assert max(moved) > 0


def test_the_same_seed_gives_the_same_run(finished: Path, tmp_path: Path) -> None:
    again = training.start(small(), tmp_path)
    run(again)
    assert history(again) == history(finished)
    assert same(weights(again), weights(finished))
    other = training.start(small(seed=1), tmp_path)
    run(other)
    assert history(other) != history(finished)


def test_an_interrupted_run_resumes_exactly(finished: Path, tmp_path: Path) -> None:
    folder = training.start(small(), tmp_path)
    assert run(folder, epochs=1) == {}
    torch.rand(7)  # the process's random state must not matter
    run(folder, epochs=2)
    result = run(folder)
    assert history(folder) == history(finished)
    assert same(weights(folder), weights(finished))
    assert same(weights(folder, "best.ckpt"), weights(finished, "best.ckpt"))
    expected = json.loads((finished / "result.json").read_text())
    assert {k: v for k, v in result.items() if k not in ("seconds", "step_ms")} == {
        k: v for k, v in expected.items() if k not in ("seconds", "step_ms")
    }


def test_a_finished_run_is_only_tested_again(finished: Path) -> None:
    before = weights(finished)
    assert run(finished)["epochs"] == 3
    assert same(weights(finished), before)
    assert training.evaluate(finished, accelerator="cpu")["test_accuracy"] == pytest.approx(
        json.loads((finished / "result.json").read_text())["test_accuracy"]
    )


def test_predictions_see_images_as_training_did(finished: Path, tmp_path: Path) -> None:
    task, model = training.load(finished)
    x, _ = task.batch("test", task.load(None)["test"], torch.arange(8), 0)
    bright = (x[:, 0] * ddmnist.STD + ddmnist.MEAN).numpy()
    for k in range(8):
        np.save(tmp_path / f"{k}.npy", bright[k])
    with torch.no_grad():
        wanted = model(x).softmax(1).max(1)
    found = []
    for _, answer in training.answers(finished, [tmp_path]):
        assert isinstance(answer, dict)
        found.append(answer)
    assert task.class_names is not None
    assert [answer["class"] for answer in found] == [task.class_names[k] for k in wanted.indices]
    assert [answer["probability"] for answer in found] == pytest.approx(wanted.values.tolist(), abs=1e-5)


def test_a_number_is_better_than_none() -> None:
    best: float | None = None
    for score in (math.nan, 0.5, math.nan, 0.1, 0.2):
        if under_way.better(score, best, training.Metric("mse", more_is_better=False)):
            best = score
    assert best == 0.1
    assert under_way.better(0.3, 0.2, training.Metric("accuracy", more_is_better=True))


def test_a_name_is_that_of_one_folder(tmp_path: Path) -> None:
    for name in ("../x", "a/b"):
        with pytest.raises(RunError, match="name of a single folder"):
            training.start(small(), tmp_path / "runs", name)
    assert not list(tmp_path.iterdir())


def test_runs_are_never_overwritten(tmp_path: Path) -> None:
    folders = [training.start(small(lr=lr), tmp_path, "mine") for lr in (0.1, 0.2, 0.3, 0.2)]
    assert [f.name for f in folders] == ["mine-seed0", "mine-seed0-2", "mine-seed0-3", "mine-seed0-2"]


@pytest.mark.parametrize("method", ["cnn", "scnn", "restricted", "rpp", "twin"])
def test_every_method_trains(method: str, tmp_path: Path) -> None:
    folder = training.start(small(method=method, epochs=1), tmp_path)
    result = run(folder)
    assert 0 <= result["test_accuracy"] <= 1
    assert ("train/penalty" in history(folder)[0]) == (method == "rpp")


def test_low_precision_and_construction_train(tmp_path: Path) -> None:
    folder = training.start(small(precision="bf16", alignment="construction", epochs=1), tmp_path)
    assert np.isfinite(run(folder)["test_loss"])


def test_exact_alignment_needs_no_loss(tmp_path: Path) -> None:
    folder = training.start(small(alignment="exact", uniform_first=True, lr=0.01, epochs=2), tmp_path)
    training.train(folder, progress=False)
    model = training.load(folder).model
    for lam in likelihoods(model).values():
        assert lam.effective_size() < 1 - 1e-5
        assert lam.alignment_error() < 1e-5
    row = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
    assert row["train/loss"] == pytest.approx(row["train/task"] + 3 * row["train/kl"], rel=1e-5)


def test_volumes_train(tmp_path: Path) -> None:
    settings = {"task": "shapes3d", "epochs": 1, "batch_size": 4, "balanced": True, "select": "last"}
    counts = {"train_count": 6, "validation_count": 4, "test_count": 6}
    folder = training.start(make_settings({**settings, **counts}), tmp_path)
    assert folder.parent == tmp_path / "shapes3d"
    assert folder.name.startswith("p-scnn-O3-chiral-train_count=6-")
    result = run(folder)
    assert 0 <= result["test_auc"] <= 1
    assert np.load(folder / "confusion.npy").sum() == 6
    assert set(np.load(folder / "densities.npz").files) == set(likelihoods(training.load(folder).model))


def test_classes_can_be_weighted_by_their_frequency() -> None:
    data = training.Data(training.task_of(small()))
    assert torch.allclose(data.class_weights(), torch.ones(4))
    data.splits["train"].labels = torch.tensor([0, 0, 0, 1, 2, 3])
    assert torch.allclose(data.class_weights(), torch.tensor([0.5, 1.5, 1.5, 1.5]))


def test_the_papers_learning_rate_depends_on_the_data_set() -> None:
    assert make_settings({"task": "medmnist3d"}).lr == 5e-5
    assert make_settings({"task": "medmnist3d", "dataset": "nodule"}).lr == 1e-5
    assert make_settings({"task": "medmnist3d", "lr": 0.1}).lr == 0.1
    with pytest.raises(ConfigError, match="fraction must lie"):
        make_settings({"task": "medmnist3d", "fraction": 0.0})


def test_weight_decay_spares_the_densities() -> None:
    module = training.Classification(training.task_of(small(weight_decay=0.5)))
    optimizer = module.make_optimizer()
    with torch.no_grad():
        for lam in likelihoods(module.model).values():
            lam.coefficients.fill_(1.0)
    assert isinstance(module.model, torch.nn.Sequential)
    last = module.model[-1]
    assert isinstance(last, torch.nn.Linear)
    weight = last.weight
    before = weight.clone()
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert torch.allclose(weight, before * (1 - 0.5 * module.settings.lr))
    for lam in likelihoods(module.model).values():
        assert torch.equal(lam.coefficients, torch.ones_like(lam.coefficients))


def test_a_full_disk_keeps_the_last_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = training.start(small(), tmp_path)
    run(folder, epochs=1)
    before = weights(folder)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RunError, match=r"cannot write .*No space left"):
        run(folder)
    monkeypatch.undo()
    assert same(weights(folder), before)
    assert not list(folder.glob(".*partial*"))
    run(folder)


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    folder = training.start(small(), tmp_path)
    run(folder, epochs=1)
    last = folder / "last.ckpt"
    last.write_bytes(last.read_bytes()[:1000])
    with pytest.raises(RunError, match=r"last.ckpt is damaged and cannot be read"):
        run(folder)
    with pytest.raises(RunError, match="is not a run"):
        training.load(tmp_path)
    with pytest.raises(RunError, match="no complete epoch yet"):
        training.load(training.start(small(seed=1), tmp_path))


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot create the folder"):
        training.start(small(), tmp_path / "file")


def test_a_run_says_what_code_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def described(name: str) -> dict[str, Any]:
        _environment._source.cache_clear()
        folder = training.start(small(), tmp_path / name)
        found: dict[str, Any] = json.loads((folder / "environment.json").read_text())
        return {**found, "code": training.Store(tmp_path / name).code(small())}

    place = tmp_path / "package"
    place.mkdir()
    (place / "a.py").write_text("1")
    monkeypatch.setattr(_environment, "HERE", place)
    plain = described("plain")
    assert plain["git"] is None
    assert plain["source"][:10] in plain["code"]
    monkeypatch.setenv("PSCNN_REVISION", "abc123")
    assert described("copied")["git"] == "abc123"
    monkeypatch.delenv("PSCNN_REVISION")
    git = ["git", "-C", str(place), "-c", "user.name=x", "-c", "user.email=x"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    clean = described("clean")
    assert len(clean["git"]) == 40
    assert clean["source"] == plain["source"]
    (place / "a.py").write_text("2")
    changed = described("changed")
    assert changed["git"] == f"{clean['git']}+"
    assert changed["source"] != clean["source"]
    assert changed["code"].endswith(f"({clean['git'][:10]}+)")
    monkeypatch.setenv("PSCNN_REVISION", "abc123")  # as in a copy of the files in which an older repository lies
    assert described("told")["git"] == "abc123"
    _environment._source.cache_clear()


def test_data_have_a_digest() -> None:
    """Which does not depend on the task's object or on where it is loaded, and does on every number."""
    one, same, other = (training.Data(training.task_of(small(seed=seed))) for seed in (0, 0, 1))
    assert one.digest == same.digest != other.digest
    same.splits["test"].labels[-1] += 1
    assert learner_module._digest(same.splits) != one.digest


def test_a_run_starts_where_git_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = training.start(small(), tmp_path)
    assert json.loads((folder / "environment.json").read_text())["git"] is None


def test_a_last_batch_of_one_image_is_filled_up(tmp_path: Path) -> None:
    folder = training.start(small(kinds=3, train_per_class=1, batch_size=4, epochs=1), tmp_path)
    assert run(folder)["epochs"] == 1


def test_the_area_under_the_curve_is_that_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(60, 4, generator=generator).mul(2).round()  # with equal ones among them
    labels = torch.randint(4, (60,), generator=generator)
    wanted = metrics.roc_auc_score(labels, scores.double().softmax(1), multi_class="ovr", average="macro")
    assert learner_module.area_under_curve(scores, labels) == pytest.approx(wanted)
    diverged = scores.where(scores < 3, math.nan)
    assert math.isnan(learner_module.area_under_curve(diverged, labels) or 0)
    assert math.isnan(learner_module.area_under_curve(diverged, torch.zeros_like(labels)) or 0)
    assert learner_module.area_under_curve(scores, torch.zeros_like(labels)) is None
    assert learner_module.area_under_curve(scores, labels % 2) == pytest.approx(  # the other classes do not occur
        sum(metrics.roc_auc_score(labels % 2 == k, scores.double().softmax(1)[:, k]) for k in (0, 1)) / 2
    )


def test_a_missing_gpu_is_one_message(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(RunError, match="no GPU is available"):
        training.train(training.start(small(), tmp_path), accelerator="gpu", progress=False)


def test_a_run_without_its_last_checkpoint_is_not_started_over(tmp_path: Path) -> None:
    folder = training.start(small(), tmp_path)
    run(folder, epochs=1)
    (folder / "last.ckpt").unlink()
    with pytest.raises(RunError, match=r"metrics but no last.ckpt"):
        run(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epoch": 3}, r"ddmnist has no setting 'epoch' \(no task has it\); it has source"),
        ({"epochs": "many"}, "epochs must be of type int, got 'many'"),
        ({"epochs": 0}, "epochs must lie between 1 and"),
        ({"lr": -1}, "lr must be positive"),
        ({"kl_weight": -1}, "kl_weight must be 0 or more"),
        ({"kl_weight": math.nan}, "kl_weight must be a finite number"),
        ({"lr": math.inf}, "lr must be a finite number"),
        ({"dataset": "organ"}, r"ddmnist has no setting 'dataset' \(medmnist3d has it\)"),
        ({"method": "scnn", "bandlimit": 3}, "bandlimit has no effect with method scnn; it applies to p-scnn"),
        ({"group": "O(4)"}, "unknown group"),
        ({"group": "SO(3)"}, "group of the plane"),
        ({"method": "magic"}, "method must be one of cnn"),
        ({"batch_size": 1}, "batch_size must lie between 2 and"),
        ({"kinds": 11}, "kinds must lie between 2 and 10"),
        ({"invariant": 1}, "invariant must be of type bool"),
    ],
)
def test_bad_settings_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_settings({"task": "ddmnist", **values})


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pscnn", *arguments]


def wait_for_epochs(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    for _ in range(3000):
        if (folder / "last.ckpt").exists() and len(history(folder)) >= count:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise AssertionError("the run did not get anywhere")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_continues_from_its_last_epoch(how: signal.Signals, tmp_path: Path) -> None:
    config = small(epochs=400)
    folder = training.start(config, tmp_path)
    arguments = command("train", "--resume", str(folder), "--accelerator", "cpu", "--no-progress")
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for_epochs(folder, 2, process)
    os.kill(process.pid, how)
    output, _ = process.communicate(timeout=300)
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "To continue: pscnn train --resume" in output
        assert "Traceback" not in output
    done = len(history(folder))
    run(folder, epochs=done + 1)
    rows = history(folder)
    assert [row["epoch"] for row in rows] == list(range(done + 1))
    reference = training.start(config, tmp_path / "reference")
    run(reference, epochs=done + 1)
    assert history(reference) == rows
    assert same(weights(reference), weights(folder))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_processes_end_with_the_one_that_started_them(how: signal.Signals, tmp_path: Path) -> None:
    folder = training.start(small(epochs=100_000), tmp_path)
    arguments = command("train", "--resume", str(folder), "--accelerator", "cpu", "--devices", "2", "--no-progress")
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for_epochs(folder, 1, process)
    os.kill(process.pid, how)
    output, _ = process.communicate(timeout=300)  # which waits until all of them have closed their output
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "--accelerator cpu --devices 2" in " ".join(output.split())
        assert "Traceback" not in output
    done = len(history(folder))
    time.sleep(1)
    assert len(history(folder)) == done


def test_two_processes_train_together(tmp_path: Path) -> None:
    folder = training.start(small(epochs=2), tmp_path)
    arguments = command("train", "--resume", str(folder), "--accelerator", "cpu", "--devices", "2", "--no-progress")
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(history(folder)) == 2
    assert json.loads((folder / "result.json").read_text())["epochs"] == 2


def test_processes_differ_from_one_with_larger_batches_by_statistics_of_normalisation_alone() -> None:
    """Every process has its share of a batch: gradients of shares average to that of the batch, if statistics agree."""
    torch.manual_seed(0)
    learner = training.task_of(small()).learner().double()
    x, y = torch.randn(16, *learner.task.input_shape, dtype=torch.float64), torch.randint(4, (16,))

    def gradients(rows: slice) -> torch.Tensor:
        learner.zero_grad()
        learner.objective(x[rows], y[rows])["loss"].backward()
        return torch.cat([p.grad.flatten() for p in learner.parameters() if p.grad is not None])

    def gap() -> float:
        whole, halves = gradients(slice(None)), (gradients(slice(0, None, 2)) + gradients(slice(1, None, 2))) / 2
        return ((whole - halves).norm() / whole.norm()).item()

    learner.train()
    assert gap() > 1e-3
    learner.eval()
    assert gap() < 1e-10

"""One self-contained HTML file about one or several runs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from torch import Tensor, nn

from pscnn import training
from pscnn._extras import require
from pscnn._files import check_place, reported, write_whole
from pscnn.densities import likelihoods, summary, typed_layers
from pscnn.groups import Elements, Group, explored
from pscnn.models import roll_out
from pscnn.report import _explore
from pscnn.report._folded import (
    cautions,
    confusion_shares,
    csv_files,
    curves,
    environment_text,
    error_figure,
    errors_by_step,
    forecast_pictures,
    forecasts_side_by_side,
    not_equivariant,
    train_command,
)
from pscnn.report._phrases import group_words
from pscnn.report._rows import score_labels
from pscnn.report._sure import Finished, comparisons, network_labels, score_words, untested
from pscnn.training import RunError, Task

IMAGES, VOLUMES = 16, 4
"""Test images, and volumes, on which equivariance errors are measured."""


class Examples(NamedTuple):
    """Inputs with their targets, if there are any; of networks that forecast, what the first one says and the truth."""

    inputs: Tensor
    targets: Tensor | None
    forecast: list[Tensor]


def html_report(
    folders: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    answer: Mapping[str, Any] | None = None,
) -> Path:
    """Write a report of finished runs; it opens in a browser without a server or a network.

    Args:
        folders: The runs, or one of them.
        out: The file, or the folder for ``report.html``; by default the first run's. An existing
            file is never replaced: the new one gets a number.
        data_dir: Data folder, to measure equivariance errors on images of the runs' own test sets.
        answer: What ``discover`` puts first.
    """
    check_report()
    import jinja2

    given = [folders] if isinstance(folders, str | Path) else folders
    runs = [*{Path(folder).resolve(): Path(folder) for folder in given}.values()]
    if not runs:
        raise RunError("html_report: give the folders of one or more runs")
    labels = score_labels([training.read_task(run) for run in runs])  # says it if one is not a run at all
    path = Path(out) if out is not None else runs[0]
    path = path / "report.html" if path.is_dir() else path
    problem = f"cannot write {path}", RunError, ". Choose another file with --out"
    with reported(*problem):  # said before minutes of work
        check_place(path)
    # Whatever is not Markup is escaped: names of files and classes come from anywhere.
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, loader=jinja2.PackageLoader("pscnn.report"), trim_blocks=True
    )
    environment.globals["source"] = partial(_source, environment)
    results = [_result(run) for run in runs]
    loaded = [training.load(run) for run in runs]
    with training.suitable_threads(nn.ModuleList([model for _, model in loaded])):
        content = _content(runs, labels, results, loaded, data_dir, answer)
    page = environment.get_template("report.html").render(**content)
    with reported(*problem):
        return _written(page, path)


def check_report() -> None:
    """Raise an error if what reports need is not installed."""
    for module in ("PIL", "matplotlib", "jinja2"):
        require(module, "plots", "The HTML report")


def _source(environment: Any, name: str) -> Any:
    """A script or a style sheet of the package, which no user has written, as it is."""
    from markupsafe import Markup

    return Markup(environment.loader.get_source(environment, name)[0])


def _result(folder: Path) -> dict[str, Any]:
    result = training.read_result(folder)
    if result is None:
        raise RunError(f"{folder} is not finished: continue it with: pscnn train --resume {folder}")
    return result


def examples_of(task: Task, model: nn.Module, data_dir: str | Path | None) -> Examples:
    """Examples of the first test."""
    name = task.tests[0] if task.tests else "train"
    split = task.load(data_dir)[name]
    if task.stacked:
        return Examples(split.x[:IMAGES], None, [])
    wanted = IMAGES if task.settings.dimension == 2 else VOLUMES
    rows = torch.linspace(0, len(split) - 1, min(wanted, len(split))).long()
    inputs, targets = task.batch(name, split, rows, 0)
    if not task.forecasts:
        return Examples(inputs, targets, [])
    with torch.no_grad():
        return Examples(inputs, None, [roll_out(model, inputs[:1], targets.shape[1])[0], targets[0]])


def _known_group(settings: Any) -> Group | None:
    """The group, by which also plain convolutions are measured; vectors have none."""
    return None if settings.dimension is None else settings.parsed_group


def _written(page: str, path: Path) -> Path:
    """Under this name, or with the first number behind it that is free."""
    for place in chain([path], (path.with_name(f"{path.stem}-{k}{path.suffix}") for k in count(2))):
        with contextlib.suppress(FileExistsError):
            write_whole(place, page, new=True)
            return place
    raise AssertionError("there is always another number")


def _content(
    runs: Sequence[Path],
    labels: Mapping[str, str],
    results: Sequence[dict[str, Any]],
    loaded: Sequence[training.Trained],
    data_dir: str | Path | None,
    answer: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Everything that the page says."""
    tasks = [task for task, _ in loaded]
    confusions = [
        training.read_confusion(r, len(t.class_names)) if t.class_names else None
        for r, t in zip(runs, tasks, strict=True)
    ]
    tested = [None if c is None else int(c.sum()) for c in confusions]
    names = network_labels(tasks)
    shown = [examples_of(task, model, data_dir) for task, model in loaded]
    called = _called(runs)
    networks, elements = _networks(called, names, loaded, shown)
    lead = networks[0]["run"] if networks else 0
    finished = [Finished(*four) for four in zip(runs, tasks, results, tested, strict=True)]
    compared = comparisons(finished, names)
    group = group_words(elements.group.name) if elements is not None and networks else None
    measured = len(shown[lead].inputs)
    table = [["run", "task", "method", "group", *labels.values(), "epoch", "parameters", "device"]]
    table += [[run, *_cells(task, result, labels)] for run, task, result in zip(called, tasks, results, strict=True)]
    data = {
        "elements": None if elements is None else _explore.element_data(elements),
        "networks": networks,
        "try": _tried(names, loaded, shown, elements, lead),
        "comparisons": compared,
        "answer": answer["figures"] if answer else None,
        "steps": errors_by_step(called, results, labels),
        "runs": [
            {"name": name, "curves": curves(training.history(run)), "confusion": confusion_shares(confusion, task)}
            for name, run, task, confusion in zip(called, runs, tasks, confusions, strict=True)
        ],
    }
    methods = [task.settings.method for task in tasks]
    unique = methods if len({*methods}) == len(runs) else called
    forecasts = {name: one.forecast for name, one in zip(unique, shown, strict=True) if one.forecast}
    return {
        "answer": answer,
        "side_by_side": forecasts_side_by_side(forecasts),
        "headline": answer["headline"] if answer else _headline(networks, runs),
        "lead": lead,
        "cautions": cautions(loaded[lead].model) if networks else [],
        "score": score_words(finished[lead], confusions[lead]),
        "data": data,
        "results": table,
        "csv": csv_files(table, networks, elements),
        "measured": measured,
        "untested": untested(compared, group, measured),
        "runs": [
            {
                "name": own_name,
                "label": name,
                "summary": summary(model) if typed_layers(model) else "",
                "learnt": bool(likelihoods(model)),
                "errors": "" if likelihoods(model) else error_figure(model, examples.inputs),
                "shares": not_equivariant(model, _known_group(task.settings)),
                "command": "" if training.trained_for_a_time(run) else train_command(task),
                "settings": yaml.safe_dump(task.settings.to_dict(), sort_keys=False),
                "environment": environment_text(run),
                "forecast": forecast_pictures(*examples.forecast) if examples.forecast else None,
            }
            for own_name, run, name, (task, model), examples in zip(called, runs, names, loaded, shown, strict=True)
        ],
    }


def _called(runs: Sequence[Path]) -> list[str]:
    """The names of the folders; where some are called alike, all with their paths."""
    names = [run.name for run in runs]
    return names if len({*names}) == len(runs) else [str(run) for run in runs]


def _networks(
    called: Sequence[str], names: Sequence[str], loaded: Sequence[Any], shown: Sequence[Examples]
) -> tuple[list[dict[str, Any]], Elements | None]:
    """The networks with densities over the group of the first one, and the elements at which they are shown."""
    groups = [_explore.explored_group(model) for _, model in loaded]
    group = next((g for g in groups if g is not None), _known_group(loaded[0][0].settings))
    if group is None:
        return [], None
    elements = explored(group)
    out = []
    for number, (run, name, (task, model), examples) in enumerate(zip(called, names, loaded, shown, strict=True)):
        its_own = groups[number]
        if its_own is not None:
            own = elements if its_own == group else explored(its_own)
            out.append(
                {
                    "run": number,
                    "name": run,
                    "label": f"{name}, seed {task.settings.seed}",
                    "sentence": _explore.sentence(model, task),
                    "size": task.input_shape[-1],
                    "elements": None if own is elements else _explore.element_data(own),
                    "layers": _explore.layers_of(model, task, examples.inputs, own),
                }
            )
    return out, elements


def _tried(
    names: Sequence[str], loaded: Sequence[Any], shown: Sequence[Examples], elements: Elements | None, lead: int
) -> dict[str, Any] | None:
    """Examples of one network, and what every kind of network that is tested on them answers: of seeds, the first."""
    inputs, targets, _ = shown[lead]
    if elements is None or targets is None:
        return None
    networks = {}
    for name, examples, (task, model) in zip(names, shown, loaded, strict=True):
        same = examples.inputs.shape == inputs.shape and torch.equal(examples.inputs, inputs)
        if same and task.class_names == loaded[lead][0].class_names and name not in networks:
            networks[name] = (task, model)
    spread = torch.linspace(0, len(inputs) - 1, min(_explore.SHOWN, len(inputs))).long()
    return _explore.tried(networks, inputs[spread], targets[spread], elements)


def _headline(networks: Sequence[Mapping[str, Any]], runs: Sequence[Path]) -> str:
    if networks:
        return str(networks[0]["sentence"])
    who = "This network has" if len(runs) == 1 else "These networks have"
    return f"{who} no densities: how much symmetry to keep was not learnt."


def _cells(task: Task, result: Mapping[str, Any], labels: Mapping[str, str]) -> list[str]:
    settings = task.settings
    return [
        f"{settings.task}, {task.variant}",
        settings.method,
        settings.group if settings.uses_group else "–",
        *(f"{result[key]:.4f}" if result.get(key) is not None else "–" for key in labels),
        str(result["best_epoch"] + 1),
        f"{result['parameters']:,}",
        str(result["device"]),
    ]

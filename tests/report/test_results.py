"""Pictures of results."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.image import AxesImage

from pscnn.report import ablation_figure, confusion_figure, training_figure
from pscnn.report._results import counts_figure


def shown(image: AxesImage) -> np.ndarray:
    values = image.get_array()
    assert values is not None
    return values


def test_confusion_shows_shares_of_the_true_class() -> None:
    figure = confusion_figure(np.array([[8, 2], [0, 5]]), ["left", "right"])
    axis = figure.axes[0]
    assert np.allclose(shown(axis.images[0]), np.array([[0.8, 0.2], [0.0, 1.0]]))
    assert [t.get_text() for t in axis.texts] == ["80", "20", "100"]
    assert [t.get_text() for t in axis.get_yticklabels()] == ["left", "right"]
    assert not confusion_figure(np.eye(40)).axes[0].texts
    assert np.isfinite(shown(confusion_figure(np.zeros((3, 3))).axes[0].images[0])).all()
    with pytest.raises(ValueError, match="square table"):
        confusion_figure(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="2 classes but 1 names"):
        confusion_figure(np.eye(2), ["one"])


def test_training_curves_show_what_there_is() -> None:
    plain = [{"epoch": k, "validation/accuracy": 0.1 * k, "train/task": 1 / (k + 1)} for k in range(4)]
    ours = [{**row, "train/kl": 0.1, "train/alignment": 0.2} for row in plain]
    figure = training_figure({"CNN": plain, "P-SCNN": ours})
    drawn = {axis.get_ylabel(): len(axis.lines) for axis in figure.axes}
    assert list(drawn) == ["validation accuracy", "training loss (task)", "KL divergence", "alignment error"]
    assert np.asarray(figure.axes[0].lines[0].get_xdata()).tolist() == [1, 2, 3, 4]
    assert len(training_figure({"CNN": plain}).axes) == 2
    with pytest.raises(ValueError, match="have none of"):
        training_figure({"x": [{"epoch": 0}]})


def test_counts_show_a_line_of_means_and_a_point_for_every_seed() -> None:
    figure = counts_figure({"CNN": {100: [0.8], 5: [0.4, 0.6]}, "P-SCNN": {5: [0.7]}})
    (axis,) = figure.axes
    mean, points, _, other, _, _ = axis.lines
    assert np.asarray(mean.get_xdata()).tolist() == [5, 100]
    assert np.allclose(mean.get_ydata(), [0.5, 0.8])
    assert np.asarray(points.get_xydata()).tolist() == [[5, 0.4], [5, 0.6], [100, 0.8]]
    assert np.allclose(other.get_ydata(), [0.7, np.nan], equal_nan=True)  # the line ends where there is no run
    assert axis.get_xscale() == "log"
    assert [t.get_text() for t in axis.get_xticklabels()] == ["5", "100"]
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["CNN", "P-SCNN"]


def test_ablations_show_mean_and_spread() -> None:
    figure = ablation_figure({"CNN": {0.5: [0.4, 0.6], 1.0: [0.8]}, "P-SCNN": {1.0: [0.9]}}, examples=1000)
    axis = figure.axes[0]
    assert np.allclose(axis.lines[0].get_ydata(), [0.5, 0.8])
    assert [t.get_text() for t in axis.get_xticklabels()] == ["500", "1000"]
    with pytest.raises(ValueError, match="no accuracies"):
        ablation_figure({"CNN": {1.0: []}})

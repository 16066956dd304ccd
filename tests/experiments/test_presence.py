"""Whether data have a symmetry: the test against its definition, how often it errs, and what it finds in digits."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from pscnn.data import transform
from pscnn.experiments import _pairs, _presence, presence
from pscnn.groups import O2, O3, SO2, SO3, C, D, Group, rotation


def arrows(count: int, seed: int, angles: tuple[float, float] = (-180.0, 180.0), off: float = 0.0) -> Tensor:
    """Hooks of different lengths and widths, drawn from formulas; ``off`` pixels right of and above the centre."""
    rng = np.random.default_rng(seed)
    steps = torch.arange(20) - 9.5
    points = torch.stack([steps.expand(20, 20) - off, -steps[:, None].expand(20, 20) - off], -1)
    out = []
    for _ in range(count):
        turn = torch.from_numpy(rotation(np.radians(rng.uniform(*angles)))).float()
        length, width = rng.uniform(4, 7), rng.uniform(0.8, 1.5)
        ends = torch.tensor([[-length, 0.0], [length, 0.0], [length - 3, 3.0]]) @ turn.T
        near = torch.stack([distance(points, a, b) for a, b in pairwise(ends)]).amin(0)
        out.append(torch.sigmoid(4 * (width - near)))
    return torch.stack(out)[:, None]


def distance(points: Tensor, a: Tensor, b: Tensor) -> Tensor:
    along = ((points - a) @ (b - a) / (b - a).square().sum()).clamp(0, 1)
    return (points - a - along[..., None] * (b - a)).norm(dim=-1)


def found(x: Tensor, candidates: list[Group], **options: object) -> list[bool | None]:
    whole = O2() if x.ndim == 4 else O3()
    return [one.present for one in presence(x, whole, candidates, **options)]  # type: ignore[arg-type]


def test_each_pair_is_judged_by_a_classifier_that_did_not_see_it() -> None:
    torch.manual_seed(0)
    d = torch.randn(9, 4, dtype=torch.float64) + 0.4
    products = d @ d.T
    ridge = _pairs.RIDGE * products.diagonal().mean()
    right = []
    for k in range(9):
        others = torch.cat([d[:k], d[k + 1 :]])
        w = torch.linalg.solve(others.T @ others + ridge * torch.eye(4), others.sum(0))
        right.append((d[k] @ w > 0).double())
    share, by_chance = _pairs.told_apart(products, seed=0)
    assert share == pytest.approx(torch.stack(right).mean().item())
    assert 0.5 < share < 1
    assert len(by_chance) == _pairs.SWAPS - 1


def test_products_are_those_of_kernels() -> None:
    a, b = torch.rand(4, 1, 12, 12), torch.rand(4, 1, 12, 12)
    expected = torch.zeros(4, 4, dtype=torch.float64)
    for first, second in zip(_pairs.features(a), _pairs.features(b), strict=True):
        rows = [*first.double(), *second.double()]
        wide = torch.stack([(p - q).square().sum() for p in rows for q in rows]).mean()
        for i in range(4):
            for j in range(4):
                for sign, p, q in ((1, i, j), (1, i + 4, j + 4), (-1, i, j + 4), (-1, i + 4, j)):
                    expected[i, j] += sign * torch.exp(-(rows[p] - rows[q]).square().sum() / wide)
    torch.testing.assert_close(_pairs.gram(a, b), expected)


def test_probabilities_are_right_where_members_are_exchangeable() -> None:
    rng = np.random.default_rng(0)
    below = 0
    for k in range(200):
        d = torch.from_numpy(rng.normal(size=(40, 6)) * rng.choice([-1, 1], size=(40, 1)))
        share, by_chance = _pairs.told_apart(d @ d.T, seed=k)
        below += (by_chance >= share).double().mean().item() <= 0.1
    assert 8 <= below <= 32  # 20 are expected, with a deviation of 4


SYMMETRIC: dict[str, tuple[Callable[[int], Tensor], list[Group]]] = {
    "drawn at any angle": (lambda k: arrows(100, k), [C(2), C(4), SO2()]),
    "about a corner of pixels": (lambda k: arrows(100, k, off=0.5), [C(2), SO2()]),
    "noise": (lambda k: torch.randn(100, 1, 16, 16, generator=torch.Generator().manual_seed(k)), [D(4), D(1), O2()]),
}


@pytest.mark.parametrize("name", SYMMETRIC)
def test_a_symmetry_that_is_there_is_seldom_called_absent(name: str) -> None:
    make, candidates = SYMMETRIC[name]
    errors = sum(False in found(make(k), candidates, seed=k) for k in range(12))
    assert errors <= 3  # one in twenty is expected at most


def test_the_symmetries_of_many_arrows_are_found() -> None:
    x = arrows(500, 0)
    assert found(x, [C(2), SO2(), D(1), O2()]) == [True, True, False, False]
    assert found(arrows(300, 1, angles=(-45, 45)), [C(2), C(4), SO2()]) == [False, False, False]


def test_few_examples_do_not_tell() -> None:
    assert found(arrows(8, 0, angles=(-5, 5)), [C(2)]) == [None]
    one = presence(arrows(40, 0), O2(), [SO2()])[0]
    assert one.present is None
    assert one.low < 0.5 < 0.6 < one.high
    assert one.examples == 40


def test_what_a_subgroup_lacks_larger_groups_lack() -> None:
    """Half of the copies by D(16) are rotated only: its test alone says less than that of the mirror."""
    x = arrows(110, 3)
    alone = presence(x, D(16), [D(16)])[0]
    small, large = presence(x, D(16), [D(1), D(16)])
    assert alone.present is None
    assert small.present is large.present is False


def test_upright_digits_are_called_upright() -> None:
    from sklearn.datasets import load_digits

    digits = torch.from_numpy(load_digits().images[:250] / 16).float()[:, None]
    x = torch.nn.functional.pad(torch.nn.functional.interpolate(digits, (14, 14), mode="bilinear"), (3, 3, 3, 3))
    assert found(x, [C(2), C(4), D(1), SO2(), O2()]) == 5 * [False]
    turned = transform(x, torch.from_numpy(O2().sample(len(x), seed=0)))
    assert False not in found(turned, [C(2), C(4), D(1), SO2(), O2()])


def test_a_pose_that_tells_the_class_is_noticed() -> None:
    """Arrows to the right and their half-turns: together they have the half-turn, as classes they have not."""
    right, left = arrows(200, 0, angles=(-20, 20)), arrows(200, 1, angles=(160, 200))
    x, poses = torch.cat([right, left]), torch.arange(400) // 200
    known, mixed = (presence(x, SO2(), [C(2)], classes=y)[0] for y in (poses, torch.arange(400) % 2))
    assert known.present is not False
    assert known.within_classes is False
    assert mixed.within_classes is not False
    assert presence(x, SO2(), [C(2)])[0].within_classes is None


def test_volumes_and_oblong_images() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(80, 1, 10, 12, 11, generator=generator)
    x[:, :, 1:4] += 1  # towards negative z
    found_in_space = presence(x, O3(), [D(1).about((0, 0, 1)), C(2).about((1, 0, 0)), SO3()])
    assert [one.present for one in found_in_space] == [None, False, False]
    oblong = torch.rand(150, 2, 12, 30, generator=generator)
    oblong[:, :, 2:5] += 1
    assert found(oblong, [D(1), C(2), C(4)]) == [None, False, False]


def test_large_images_are_looked_at_coarsely() -> None:
    assert _presence._simplified(torch.rand(2, 1, 100, 56)).shape == (2, 1, 28, 16)
    assert _presence._simplified(torch.rand(2, 1, 9, 9)).shape == (2, 1, 9, 9)


def test_the_best_centre_is_found() -> None:
    elements = torch.from_numpy(SO2().sample(32, seed=0))
    rows_and_columns = _presence._centre(_presence._simplified(arrows(400, 0, off=0.5)), elements)
    torch.testing.assert_close(rows_and_columns, torch.tensor([[-0.5, 0.5]]), rtol=0, atol=0.1)


def test_time_is_kept_and_wrong_candidates_get_a_sentence() -> None:
    x = arrows(30, 0)
    assert found(x, [C(2), C(4)], seconds=0.0) == [None, None]
    with pytest.raises(ValueError, match=r"D\(1\) is not a subgroup of C\(4\)"):
        presence(x, C(4), [D(1)])
    with pytest.raises(ValueError, match=r"C\(1\) has no element but the identity"):
        presence(x, C(4), [C(1)])


def test_classes_are_compared_about_the_best_centre_too() -> None:
    """Arrows at any angle about a corner of pixels, in two classes that mean nothing."""
    one = presence(arrows(300, 5, off=0.5), SO2(), [C(2)], classes=torch.arange(300) % 2)[0]
    assert one.present is not False
    assert one.within_classes is not False

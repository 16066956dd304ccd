"""Shapes are drawn where their poses say, and have the symmetries that the proofs rest on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from known_shapes import OWN
from scipy import ndimage

from pscnn._types import Array
from pscnn.data import known
from pscnn.data._known_shapes import SHAPES, draw
from pscnn.data.known import TASKS, Kept
from pscnn.groups import MIRROR, O3, rotation

FLAT = [name for name, strokes in SHAPES.items() if len(strokes[0][0]) == 2]
SOLID = [name for name in SHAPES if name not in FLAT]
EVERY_WAY = np.concatenate([rotation(np.radians(np.arange(0, 360, 5))) @ flip for flip in (np.eye(2), MIRROR)])


def picture(shape: str, poses: Array, size: int = 28, shift: tuple[float, ...] | None = None) -> Array:
    n, count = poses.shape[-1], len(poses)
    place = torch.tensor(shift or [0.0] * n, dtype=torch.float64).expand(count, n)
    place = (torch.tensor(poses) @ place[..., None])[..., 0]
    ones = torch.ones(count, dtype=torch.float64)
    return draw(shape, torch.tensor(poses), 0.9 * ones, 0.1 * ones, place, size)[:, 0].double().numpy()


@pytest.mark.parametrize("shape", FLAT)
def test_images_turn_as_their_poses_do(shape: str) -> None:
    pose = rotation(np.radians(17.0))
    turns = np.stack([np.eye(2), rotation(np.pi / 2), rotation(np.pi), MIRROR, -MIRROR])
    plain, quarter, half, mirrored, flipped = picture(shape, turns @ pose, shift=(0.1, 0.05))
    assert np.allclose(quarter, np.rot90(plain), atol=1e-6)  # counter-clockwise
    assert np.allclose(half, np.rot90(plain, 2), atol=1e-6)
    assert np.allclose(mirrored, plain[:, ::-1], atol=1e-6)
    assert np.allclose(flipped, plain[::-1], atol=1e-6)
    (fine,) = picture(shape, pose[None], 112)
    (turned,) = picture(shape, (rotation(np.radians(33.0)) @ pose)[None], 112)
    by_pixels = ndimage.rotate(fine, 33, reshape=False, order=3)
    y, x = np.mgrid[:112, :112] - 55.5
    inside = np.hypot(x, y) < 54  # what comes from the corners is not known
    assert difference((turned * inside)[None], (by_pixels * inside)[None]) < 0.03


@pytest.mark.parametrize("shape", SOLID)
def test_volumes_turn_as_their_poses_do(shape: str) -> None:
    pose = O3().sample(1, seed=4)[0]
    about_z = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    to_z = np.array([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]])  # z to x, x to −z
    plain, quarter, swapped, inverted = picture(shape, np.stack([np.eye(3), about_z, to_z, -np.eye(3)]) @ pose, 16)
    assert np.allclose(quarter, np.rot90(plain, axes=(1, 2)), atol=1e-6)  # y is against the second axis
    assert np.allclose(swapped, plain.transpose(2, 1, 0)[::-1], atol=1e-6)
    assert np.allclose(inverted, plain[::-1, ::-1, ::-1], atol=1e-6)


def difference(a: Array, b: Array) -> Array:
    """Between pictures, as a share of their brightness."""
    axes = tuple(range(1, a.ndim))
    return np.sqrt(((a - b) ** 2).sum(axes) / (a**2 + b**2).sum(axes))


@pytest.mark.parametrize("shape", FLAT)
def test_shapes_have_their_own_symmetries_and_no_others(shape: str) -> None:
    own = OWN[shape].elements()
    (plain,) = picture(shape, np.eye(2)[None], 56)
    assert (difference(picture(shape, own, 56), plain[None]) < 0.02).all()
    nearest = np.einsum("aij,bij->ab", EVERY_WAY, own).max(1) / 2  # cosine of the angle to the nearest symmetry
    far = nearest < np.cos(np.radians(14))
    assert far.sum() > 10
    assert difference(picture(shape, EVERY_WAY[far], 56), plain[None]).min() > 0.2


def test_solid_shapes_have_their_own_symmetries() -> None:
    for shape in SOLID:
        (plain,) = picture(shape, np.eye(3)[None], 24)
        assert (difference(picture(shape, OWN[shape].elements()[::17], 24), plain[None]) < 0.05).all()
    (helix,) = picture("helix", np.eye(3)[None], 16)
    mirrored = -O3().sample(400, seed=0)
    mirrored = mirrored[np.linalg.det(mirrored) < 0]
    assert difference(picture("helix", mirrored, 16), helix[None]).min() > 0.3  # at no pose its own mirror image


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if len(task.shapes) > 1])
def test_no_pose_takes_one_shape_to_another(name: str) -> None:
    task = TASKS[name]
    ways = EVERY_WAY if task.dimension == 2 else O3().sample(300, seed=0)
    plain = {shape: picture(shape, np.eye(task.dimension)[None], task.size)[0] for shape in task.shapes}
    for shape in task.shapes:
        turned = picture(shape, ways, task.size)
        for other in set(task.shapes) - {shape}:
            assert difference(turned, plain[other][None]).min() > 0.25, (shape, other)


@pytest.mark.parametrize("name", ["components", "direction", "volume-components"])
def test_targets_point_where_the_shape_does(name: str) -> None:
    images, targets = known.examples(name, count=40)
    steps = np.arange(images.shape[1]) - (images.shape[1] - 1) / 2
    task = TASKS[name]
    *depth, row, column = np.meshgrid(*[steps] * task.dimension, indexing="ij")
    bright = images > 128
    shift = known.place(task, count=40).shift.numpy() * len(steps) / 2
    axes = tuple(range(1, images.ndim))
    middle = np.stack([(bright * way).sum(axes) / bright.sum(axes) for way in (column, -row, *depth)], 1) - shift
    cosine = (middle * targets).sum(1) / np.linalg.norm(middle, axis=1)
    assert np.abs(cosine).min() > 0.7
    assert (cosine > 0).all() or name == "direction"  # the heavy end of a comet is in front; an arrow's varies


def test_examples_come_from_their_seed() -> None:
    images, labels = known.examples("bars", seed=3, count=20)
    again, same = known.examples("bars", seed=3, count=20)
    assert images.dtype == np.uint8
    assert (images == again).all()
    assert (labels == same).all()
    assert (known.examples("bars", seed=4, count=20)[0] != images).any()
    with pytest.raises(ValueError, match="unknown task 'bar': use one of arrows, "):
        known.examples("bar")


def test_targets_of_random_tasks_have_nothing_to_do_with_the_images() -> None:
    task = TASKS["random-classes"]
    placed = known.place(task)
    sector = torch.atan2(placed.pose[:, 1, 0], placed.pose[:, 0, 0]).div(torch.pi / 2).round() % 4
    assert 0.15 < (sector == placed.target).double().mean() < 0.35


def test_labels_and_masks_are_those_of_the_shapes() -> None:
    placed = known.place(TASKS["bars-labels"], count=50)
    along = placed.pose[:, :, 0].abs()
    assert ((along[:, 0] > along[:, 1]) == placed.target[:, 0].bool()).all()
    assert ((placed.scale > 0.85) == placed.target[:, 1].bool()).all()
    images, masks = known.examples("comets-mask", count=50)
    assert masks.shape == images.shape
    up = known.place(TASKS["comets-mask"], count=50).pose[:, 1, 0].numpy() > 0
    assert (masks.max((1, 2)) == np.where(up, 1, 2)).all()
    inside, outside = ((images * where).sum((1, 2)) / where.sum((1, 2)) for where in (masks > 0, masks == 0))
    assert (inside > 2 * outside).all()


@pytest.mark.parametrize("name", ["volume-shapes", "volume-helices", "volume-components"])
def test_any_pose_in_space_is_as_likely_as_any_other(name: str) -> None:
    poses = known.place(TASKS[name], count=4000).pose.numpy()
    if TASKS[name].hands == "one":
        assert (np.linalg.det(poses) > 0).all()
    assert np.abs(poses.mean(0)).max() < 0.04  # four standard errors; half of all, were a sign always the same
    assert (
        np.abs(
            np.einsum("nij,nkl->ijkl", poses, poses) / len(poses) - np.einsum("ik,jl->ijkl", *[np.eye(3)] * 2) / 3
        ).max()
        < 0.05
    )


def test_a_mirror_line_stays_where_it_is() -> None:
    for angle in (0.0, 30.0, 90.0, 135.0):
        along = rotation(np.radians(angle))[:, 0]
        assert np.allclose(Kept("D(1)", angle).elements()[1] @ along, along)

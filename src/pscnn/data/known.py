"""Tasks whose symmetries are known by construction, to see what a method says about them.

An example is a shape at a pose g in O(n) with a size, a pen and a place of its own, and its target depends on the shape
and the pose only. So what a subgroup K costs is known without any network: functions that K leaves unchanged see K·g in
place of g. ``truth`` names the largest subgroups that cost nothing; the tests prove it from the poses.

Where the poses do not fill O(n), as in images that come upright, a subgroup may be enforced that is no symmetry of the
images: it is enough that it takes no example of one class to one of another.
"""

from pscnn._types import AnyArray
from pscnn.data._folder import check_known
from pscnn.data._known_examples import GAP, TARGETS, KnownTask, Placed, place, render
from pscnn.data._known_truth import Kept

__all__ = ["GAP", "TARGETS", "TASKS", "Kept", "KnownTask", "Placed", "examples", "place", "render"]

_CLOTHES = ("trousers", "shirt", "dress", "shoe", "bag")
_NONE = Kept("C(1)")
_UP = (0.0, 0.0, 1.0)

TASKS: dict[str, KnownTask] = {
    # The identity.
    "arrows": KnownTask(
        "Arrows that point right, up, left or down, up to 38° off.",
        (_NONE,), ("arrow",), centres=(0, 90, 180, 270), spread=38, count=1000,
    ),
    "clock": KnownTask(
        "Hands of a clock that point right, up, left or down, up to 38° off; all lie half a pixel beside the centre.",
        (_NONE,), ("hand",), centres=(0, 90, 180, 270), spread=38, count=1000, shift=0.0, beside=(0.5, -0.5),
    ),
    "b-d-p-q": KnownTask(
        "The letters b, d, p and q within ±60°.",
        (_NONE,), ("b",), centres=(0, 180), spread=60, hands="told", count=1000,
    ),
    # One mirror.
    "up-down": KnownTask(
        "Arrows that point up or down, by less than 86° off.",
        (Kept("D(1)", 90),), ("arrow",), centres=(90, 270), spread=86,
    ),
    "left-right": KnownTask(
        "A dot on the left or on the right.",
        (Kept("D(1)", 0),), ("dot",), centres=(0, 180), spread=86, shift=0.0,
    ),
    "comets-30": KnownTask(
        "Comets that fly towards 30° or away from it.",
        (Kept("D(1)", 30),), ("comet",), centres=(30, 210), spread=86,
    ),
    "comets-135": KnownTask(
        "Comets that fly towards 135° or away from it.",
        (Kept("D(1)", 135),), ("comet",), centres=(135, 315), spread=86,
    ),
    "six-nine": KnownTask(
        "6 against 9, within ±45°: mirrored ones are neither, so any one mirror may be enforced.",
        (Kept("D(1)"),), ("six",), centres=(0, 180), spread=45,
    ),
    # Some rotations.
    "N-Z-mirrored": KnownTask(
        "N, Z (a turned N), and the mirror images of both, within ±38° or half a turn from it.",
        (Kept("C(2)"),), ("N",), centres=(0, 90), spread=38, period=180, hands="told", count=1000,
    ),
    "saws": KnownTask(
        "Saw blades with four teeth and their mirror images, upright or turned by 45°, within ±15°.",
        (Kept("C(4)"),), ("saw",), centres=(0, 45), spread=15, period=90, hands="told", count=1000,
    ),
    # All rotations.
    "b-mirrored": KnownTask(
        "The letter b against its mirror image, at any angle.",
        (Kept("SO(2)"),), ("b",), hands="told",
    ),
    "S-mirrored": KnownTask(
        "The letter S against its mirror image, at any angle.",
        (Kept("SO(2)"),), ("S",), hands="told",
    ),
    "L-J": KnownTask(
        "L against its mirror image within ±110°: rotations take neither to the other.",
        (Kept("SO(2)"),), ("L",), spread=110, hands="told",
    ),
    # Two mirrors and the half-turn.
    "bars": KnownTask(
        "Bars nearer to horizontal against bars nearer to vertical.",
        (Kept("D(2)", 0),), ("bar",), centres=(0, 90), spread=38, period=180,
    ),
    "bars-30": KnownTask(
        "Bars at about 30° against bars at about 120°.",
        (Kept("D(2)", 30),), ("bar",), centres=(30, 120), spread=38, period=180,
    ),
    "quadrants": KnownTask(
        "A dot in the first or third quadrant against a dot in the second or fourth.",
        (Kept("D(2)", 45),), ("dot",), centres=(45, 135), spread=40, period=180, shift=0.0,
    ),
    "N-Z": KnownTask(
        "N against Z within ±38°, or half a turn from it: mirrored ones are neither, so any mirror may be enforced.",
        (Kept("D(2)"),), ("N",), centres=(0, 90), spread=38, period=180,
    ),
    # More mirrors.
    "triangles": KnownTask(
        "Triangles that point up or down.",
        (Kept("D(3)", 90),), ("triangle",), centres=(90, 270), spread=25, period=120,
    ),
    "plus-cross": KnownTask(
        "Plus signs against crosses, within ±15°.",
        (Kept("D(4)", 0),), ("plus",), centres=(0, 45), spread=15, period=90,
    ),
    "squares-22": KnownTask(
        "Squares turned by 22.5° to the left or to the right, within ±15°.",
        (Kept("D(4)", 22.5),), ("square",), centres=(22.5, -22.5), spread=15, period=90,
    ),
    "meshes": KnownTask(
        "Meshes that fill images of 64 pixels, upright or turned by 45°, within ±15°.",
        (Kept("D(4)", 0),), ("mesh",), centres=(0, 45), spread=15, period=90, side=64,
    ),
    # Everything.
    "polygons": KnownTask(
        "Triangles, squares and stars at any angle.",
        (Kept("O(2)"),), ("triangle", "square", "star"),
    ),
    "gratings": KnownTask(
        "Coarse against fine stripes, within ±20° of horizontal: they need not be told by their direction.",
        (Kept("O(2)"),), ("coarse", "fine"), spread=20,
    ),
    "clothes-upright": KnownTask(
        "Trousers, shirts, dresses, shoes and bags, upright within ±10°.",
        (Kept("O(2)"),), _CLOTHES, spread=10, count=1000,
    ),
    "clothes-turned": KnownTask(
        "The same clothes at any angle, half of them mirrored.",
        (Kept("O(2)"),), _CLOTHES, hands="both", count=1000,
    ),
    # Nothing can be known.
    "noise": KnownTask(
        "Random pixels with random classes.",
        (), (), centres=(0, 180), random=True, count=200,
    ),
    "random-classes": KnownTask(
        "Arrows that point right, up, left or down, with random classes.",
        (), ("arrow",), centres=(0, 90, 180, 270), spread=38, random=True,
    ),
    "few-bars": KnownTask(
        "Horizontal against vertical bars, 24 of them.",
        (Kept("D(2)", 0),), ("bar",), centres=(0, 90), spread=38, period=180, may_abstain=True, count=24,
    ),
    # Numbers.
    "height": KnownTask(
        "How far an arrow points up (a number).",
        (Kept("D(1)", 90),), ("arrow",), target="height",
    ),
    "components": KnownTask(
        "How far a comet points to the right and how far up (two numbers that do not turn with it).",
        (_NONE,), ("comet",), target="components",
    ),
    "bar-angle": KnownTask(
        "Cosine and sine of twice the angle of a bar.",
        (Kept("C(2)"),), ("bar",), target="angle twice",
    ),
    "plus-angle": KnownTask(
        "Cosine and sine of four times the angle of a plus sign.",
        (Kept("C(4)"),), ("plus",), target="angle four times",
    ),
    "size": KnownTask(
        "The size of a letter b at any angle, half of them mirrored.",
        (Kept("O(2)"),), ("b",), hands="both", target="size",
    ),
    # Several labels, and a class for every pixel.
    "bars-labels": KnownTask(
        "Whether a bar is nearer to horizontal than to vertical, and whether it is long (two labels).",
        (Kept("D(2)", 0),), ("bar",), centres=(0, 90), spread=38, period=180, target="labels",
    ),
    "comets-mask": KnownTask(
        "Which pixels belong to a comet that flies up, and which to one that flies down (a mask).",
        (Kept("D(1)", 90),), ("comet",), centres=(90, 270), spread=86, target="masks",
    ),
    # Vectors.
    "direction": KnownTask(
        "The direction of an arrow (a vector that turns with it).",
        (Kept("O(2)"),), ("arrow",), target="direction",
    ),
    "to-its-left": KnownTask(
        "The direction to the left of an arrow.",
        (Kept("SO(2)"),), ("arrow",), target="to its left",
    ),
    "wind": KnownTask(
        "The direction of an arrow and a wind that blows towards 30°, added.",
        (Kept("D(1)", 30),), ("arrow",), target="with wind",
    ),
    # Volumes.
    "volume-shapes": KnownTask(
        "Rods against rings at any pose.",
        (Kept("O(3)"),), ("rod", "ring"), count=600, dimension=3,
    ),
    "volume-helices": KnownTask(
        "Left-handed against right-handed helices at any pose.",
        (Kept("SO(3)"),), ("helix",), hands="told", count=600, dimension=3,
    ),
    "volume-up-down": KnownTask(
        "Comets that fly up or down along z, by less than 86° off.",
        (Kept("O(2)@z"),), ("comet in space",), axis=_UP, count=600, dimension=3,
    ),
    "volume-components": KnownTask(
        "The components of a comet's direction (three numbers that do not turn with it).",
        (Kept("C(1)@z"),), ("comet in space",), target="components", count=600, dimension=3,
    ),
}  # fmt: skip
"""By name."""


def examples(name: str, seed: int = 0, count: int | None = None) -> tuple[AnyArray, AnyArray]:
    """Images or volumes of a task, and their targets.

    Args:
        name: One of ``TASKS``.
        seed: The same seed gives the same examples.
        count: How many; as the task says by default.

    Example:
        >>> images, labels = examples("bars", count=6)
        >>> images.shape, labels.tolist()
        ((6, 28, 28), [0, 1, 1, 0, 1, 0])
    """
    check_known("task", name, tuple(TASKS))
    return render(TASKS[name], place(TASKS[name], seed, count), seed)

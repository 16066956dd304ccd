"""The paper's networks and every baseline: one architecture per task, methods as ingredients."""

import inspect
import math
from collections.abc import Callable
from typing import Any

from torch import nn as tnn

from pscnn.groups import Group, parse
from pscnn.models._by_method import by_method, check_counts, check_density
from pscnn.models._ddmnist import DIGIT_PADDINGS, DIGIT_SIZES, double_digits
from pscnn.models._flows import FLOW_METHODS as STEERABLE_FLOW
from pscnn.models._flows import PAPER_FLOW_METHODS, PAST, flows, roll_out
from pscnn.models._kit import Rescale, advance, highest_frequency, penalty, twin
from pscnn.models._methods import METHODS as STEERABLE
from pscnn.models._methods import (
    WRAPPERS,
    Augerino,
    Augmented,
    Constrained,
    Fixed,
    FreeConvolution,
    Interval,
    Method,
    ParallelPathway,
    PenalisedKernels,
    Relaxed,
    ResidualPathway,
    read_kept,
)
from pscnn.models._own import own
from pscnn.models._released import DetachedBatchNorm, as_released
from pscnn.models._resnet import resnet
from pscnn.models._unet import unet
from pscnn.models._vectors import VECTOR_METHODS, FreeProjection, vectors
from pscnn.models._volumes import VOLUME_METHODS as STEERABLE_VOLUME
from pscnn.models._volumes import VOLUME_SIZES, volumes
from pscnn.nn import FieldType

__all__ = [
    "DENSITY_METHODS",
    "DIGIT_PADDINGS",
    "DIGIT_SIZES",
    "FLOW_METHODS",
    "MEASURE_METHODS",
    "METHODS",
    "NONLINEARITIES",
    "PAPER_FLOW_METHODS",
    "PAST",
    "STEERABLE",
    "STRENGTHS",
    "VECTOR_METHODS",
    "VECTOR_NONLINEARITIES",
    "VOLUME_METHODS",
    "VOLUME_SIZES",
    "WRAPPERS",
    "Augerino",
    "Augmented",
    "Constrained",
    "DetachedBatchNorm",
    "Fixed",
    "FreeConvolution",
    "FreeProjection",
    "Interval",
    "Method",
    "ParallelPathway",
    "PenalisedKernels",
    "Relaxed",
    "Rescale",
    "ResidualPathway",
    "advance",
    "as_released",
    "build",
    "by_method",
    "highest_frequency",
    "penalty",
    "read_kept",
    "resnet",
    "roll_out",
    "twin",
    "unet",
]

METHODS = ("cnn", *STEERABLE, *WRAPPERS)
VOLUME_METHODS = (*STEERABLE_VOLUME, *WRAPPERS)
FLOW_METHODS = (*STEERABLE_FLOW, *WRAPPERS)
DENSITY_METHODS = (*(name for name, method in STEERABLE.items() if method.has_densities), "pe-mlp")
MEASURE_METHODS = (*(name for name, method in STEERABLE.items() if method.has_measures), "pe-mlp")
STRENGTHS = {name: method.strength for name, method in STEERABLE.items() if method.strength is not None}
STRENGTHS["augerino"] = Augerino.usual_strength
"""Methods with a number of their own, and its usual value."""
NONLINEARITIES = ("gated", "gated-fields", "gated-functions", "fourier")
VECTOR_NONLINEARITIES = ("gated", "fourier")
NETWORKS: dict[str, tuple[Callable[..., tnn.Sequential], tuple[str, ...], str, str]] = {
    "images": (double_digits, METHODS, "p-scnn", ""),
    "vectors": (vectors, VECTOR_METHODS, "pe-mlp", " for vectors"),
    "volumes": (volumes, VOLUME_METHODS, "p-scnn", " for volumes"),
    "flow": (flows, FLOW_METHODS, "p-scnn", " for flows"),
    "own": (own, METHODS, "p-scnn", " for own data"),
}
"""What builds the network, its methods, the one with densities, and how messages go on."""
COUNTS = ("classes", "channels", "outputs", "hidden", "layers", "kernel")
FORMER_NAMES = {"ddmnist": "images", "medmnist3d": "volumes"}


def build(network: str, method: str | None = None, group: Group | str = "O(2)", **options: Any) -> tnn.Sequential:
    """A network, built with a method.

    Args:
        network: "images" (the paper's for double digits), "volumes" (for medical volumes), "vectors", "flow" or "own"
            (for your own images and volumes, of any size).
        method: By default the one with densities.

            - For all but "vectors": "cnn" (plain), "rpp" (residual pathway priors), "p-scnn" (learnt densities),
              "projection" (free, with a penalty on what is not equivariant), "relaxation" (free only while it is
              trained), "ace" (a learnt deviation under a constraint), "interval" (learnt intervals of rotations),
              "free" (free within the band-limit), "fixed" (a given measure), "augment" and "augerino" (the plain
              network, with inputs transformed by H or by a learnt part of it).
            - "images": also "scnn" (equivariant), "restricted" (equivariant, then free) or "twin" (free kernels in the
              equivariant network).
            - "vectors": "mlp" (plain), "e-mlp" (equivariant), "pe-mlp" (learnt densities) or "preliminary" (free
              matrices per pair of irreps instead of a density).
            - "volumes": also "scnn", "twin" or "resnet18", another architecture, with which the MedMNIST collection is
              measured; it takes ``classes`` and ``channels`` only. With measures, the second layer of every residual
              block has one, which its skip connection shares; "rpp" has a plain block beside every whole block.
            - "flow": also "mlp", "e2cnn" (equivariant to C(4)), "combo" (plain, then equivariant), "clcnn" (every pixel
              of the image has its own kernel), "lift" (equivariant, with features of the whole image), "rgroup"
              (filters mixed anew for every turn) or "rsteer" (every pixel of the kernel has its own weights). With C(4)
              they have regular fields and ReLU; methods with measures, "rpp" and "rsteer" take other groups, and have
              irreps up to frequency 2 and gates then.
        group: H, or its name: of the plane, for "volumes" of space, for "vectors" of either.
        options: For all: ``bandlimit`` (L of the densities) and ``density`` (further options of ``pscnn.Likelihood``,
            such as ``{"alignment": "construction"}``, or of the method's own measure: ``strength`` for those of
            ``STRENGTHS``, ``keep`` for "fixed"). For all but "flow": ``nonlinearity``, "gated" or "fourier" (for
            volumes: functions on the sphere, or on the group if it turns about an axis); for images and volumes also
            "gated-fields" (one gate per field instead of one per irrep) and "gated-functions" (the irreps of "fourier",
            with gates).

            - "images" and "volumes": ``invariant`` (the classifier sees invariant features only), ``size`` (side
              length: 56 as in the paper or 28; 28 as in the paper, 16 or 64), ``width`` (1.0 multiplies the numbers of
              fields; 6 is the fields of the first block, halved with "rpp"), ``classes`` and ``channels``.
            - "vectors": ``shared`` (one density for all layers) and ``noise`` (of what starts at zero, "preliminary").
            - "flow": ``size`` (height and width, for "mlp" and "clcnn"), ``hidden`` (fields, or plain channels, per
              layer), ``layers`` (two or more; "lift" and "combo" have their own number) and ``kernel`` (side length).
            - "own": ``shape`` (height and width, with a depth before them for volumes; sides of 8 or more),
              ``channels``, ``outputs`` and ``output``: "scalars" (so many numbers, such as scores of classes), "vector"
              (so many vectors, which turn with the image) or "dense" (so many numbers for every pixel); ``width`` and
              ``invariant`` as for images; ``nonlinearity`` is "fourier" by default; ``residual`` for a ResNet-18 with
              fields of functions, which has scalar outputs.

    Example:
        >>> model = build("images", method="scnn", group="C4", width=0.2)
        >>> sum(p.numel() for p in model.parameters()) > 1000
        True
    """
    network = FORMER_NAMES.get(network, network)
    if network not in NETWORKS:
        raise ValueError(f"unknown network {network!r}: use one of {', '.join(NETWORKS)}")
    make, methods, default, where = NETWORKS[network]
    method = method or default
    wrapper = WRAPPERS.get(method) if "cnn" in methods else None
    known = [name for name in inspect.signature(make).parameters if name not in ("method", "group")]
    for name in options:
        if name not in known:
            raise TypeError(f"{network} has no option {name!r}; it has {', '.join(known)}")
    nonlinearities = VECTOR_NONLINEARITIES if network == "vectors" else NONLINEARITIES
    if options.get("nonlinearity", "gated") not in nonlinearities:
        raise ValueError(f"unknown nonlinearity {options['nonlinearity']!r}: use one of {', '.join(nonlinearities)}")
    width = options.get("width", 1)
    if not isinstance(width, int | float) or not 0 < width < math.inf:
        raise ValueError(f"width must be positive and finite, got {width!r}")
    check_counts(**{name: options[name] for name in COUNTS if name in options})
    group = group if isinstance(group, Group) else parse(group)
    if method not in methods:
        raise ValueError(f"unknown method {method!r}{where}: use one of {', '.join(methods)}")
    if options.get("density") is not None:
        check_density(method, options["density"])
    if wrapper is None:
        return make(method, group, **options)
    # Their own options are where those of densities are.
    own = options.pop("density", None) or {}
    return tnn.Sequential(wrapper(make("cnn", group, **options), *_ends(make, group, options), **own))


def _ends(
    make: Callable[..., tnn.Sequential], group: Group, options: dict[str, Any]
) -> tuple[FieldType, FieldType | None]:
    """Types of what a plain network is given, and of what it gives if that is a field."""
    if make is flows:
        return FieldType(group, PAST * [group.vector]), FieldType(group, [group.vector])
    usual = {name: parameter.default for name, parameter in inspect.signature(make).parameters.items()}
    usual |= options
    kind = {"vector": group.vector, "dense": group.trivial}.get(usual.get("output", "scalars"))
    out = None if kind is None else FieldType(group, usual["outputs"] * [kind])
    return FieldType(group, usual["channels"] * [group.trivial]), out

"""The paper's networks and every baseline: one architecture per task, methods as ingredients."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn as tnn

from pscnn.groups import Group, parse
from pscnn.models._ddmnist import DIGIT_PADDINGS, DIGIT_SIZES, double_digits
from pscnn.models._flows import FLOW_METHODS, PAST, flows, roll_out
from pscnn.models._kit import Rescale, highest_frequency, penalty, twin
from pscnn.models._methods import METHODS as STEERABLE
from pscnn.models._methods import FreeConvolution, ParallelPathway, ResidualPathway
from pscnn.models._released import DetachedBatchNorm, as_released
from pscnn.models._vectors import VECTOR_METHODS, FreeProjection, vectors
from pscnn.models._volumes import VOLUME_METHODS, VOLUME_SIZES, volumes

__all__ = [
    "DENSITY_METHODS",
    "DIGIT_PADDINGS",
    "DIGIT_SIZES",
    "FLOW_METHODS",
    "METHODS",
    "NONLINEARITIES",
    "PAST",
    "VECTOR_METHODS",
    "VECTOR_NONLINEARITIES",
    "VOLUME_METHODS",
    "VOLUME_SIZES",
    "DetachedBatchNorm",
    "FreeConvolution",
    "FreeProjection",
    "ParallelPathway",
    "Rescale",
    "ResidualPathway",
    "as_released",
    "build",
    "highest_frequency",
    "penalty",
    "roll_out",
    "twin",
]

METHODS = ("cnn", *STEERABLE)
DENSITY_METHODS = (*(name for name, method in STEERABLE.items() if method.has_densities), "pe-mlp")
NONLINEARITIES = ("gated", "gated-fields", "gated-functions", "fourier")
VECTOR_NONLINEARITIES = ("gated", "fourier")
NETWORKS: dict[str, tuple[Callable[..., tnn.Sequential], tuple[str, ...], str, str]] = {
    "images": (double_digits, METHODS, "p-scnn", ""),
    "vectors": (vectors, VECTOR_METHODS, "pe-mlp", " for vectors"),
    "volumes": (volumes, VOLUME_METHODS, "p-scnn", " for volumes"),
    "flow": (flows, FLOW_METHODS, "p-scnn", " for flows"),
}
"""What builds the network, its methods, the one with densities, and how messages go on."""
FORMER_NAMES = {"ddmnist": "images", "medmnist3d": "volumes"}


def build(network: str, method: str | None = None, group: Group | str = "O(2)", **options: Any) -> tnn.Sequential:
    """A network, built with a method.

    Args:
        network: "images" (the paper's for double digits), "volumes" (for medical volumes), "vectors" or "flow".
        method: By default the one with densities.

            - "images": "cnn" (plain), "scnn" (equivariant), "restricted" (equivariant, then free), "rpp" (residual
              pathway priors), "p-scnn" (learnt densities) or "twin" (free kernels in the equivariant network).
            - "vectors": "mlp" (plain), "e-mlp" (equivariant), "pe-mlp" (learnt densities) or "preliminary" (free
              matrices per pair of irreps instead of a density).
            - "volumes": "cnn", "scnn", "twin", "rpp" (whole blocks with a plain one in parallel), "p-scnn" (the second
              layer of every residual block has a density, which its skip connection shares) or "resnet18", another
              architecture, with which the MedMNIST collection is measured; it takes ``classes`` and ``channels`` only.
            - "flow": "mlp", "cnn" (plain), "e2cnn" (equivariant to C(4)), "rpp", "combo" (plain, then equivariant),
              "clcnn" (every pixel of the image has its own kernel), "lift" (equivariant, with features of the whole
              image), "rgroup" (filters mixed anew for every turn), "rsteer" (every pixel of the kernel has its own
              weights) or "p-scnn". With C(4) they have regular fields and ReLU; "p-scnn", "rpp" and "rsteer" take
              other groups, and have irreps up to frequency 2 and gates then.
        group: H, or its name: of the plane, for "volumes" of space, for "vectors" of either.
        options: For all: ``bandlimit`` (L of the densities) and ``density`` (further options of ``pscnn.Likelihood``,
            such as ``{"alignment": "construction"}``). For all but "flow": ``nonlinearity``, "gated" or "fourier" (for
            volumes: functions on the sphere, or on the group if it turns about an axis); for images and volumes also
            "gated-fields" (one gate per field instead of one per irrep) and "gated-functions" (the irreps of "fourier",
            with gates).

            - "images" and "volumes": ``invariant`` (the classifier sees invariant features only), ``size`` (side
              length: 56 as in the paper or 28; 28 as in the paper, 16 or 64), ``width`` (1.0 multiplies the numbers of
              fields; 6 is the fields of the first block, halved with "rpp"), ``classes`` and ``channels``.
            - "vectors": ``shared`` (one density for all layers) and ``noise`` (of what starts at zero, "preliminary").
            - "flow": ``size`` (height and width, for "mlp" and "clcnn"), ``hidden`` (fields, or plain channels, per
              layer), ``layers`` (two or more; "lift" and "combo" have their own number) and ``kernel`` (side length).

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
    known = [name for name in inspect.signature(make).parameters if name not in ("method", "group")]
    for name in options:
        if name not in known:
            raise TypeError(f"{network} has no option {name!r}; it has {', '.join(known)}")
    nonlinearities = VECTOR_NONLINEARITIES if network == "vectors" else NONLINEARITIES
    if options.get("nonlinearity", "gated") not in nonlinearities:
        raise ValueError(f"unknown nonlinearity {options['nonlinearity']!r}: use one of {', '.join(nonlinearities)}")
    group = parse(group) if isinstance(group, str) else group
    if method not in methods:
        raise ValueError(f"unknown method {method!r}{where}: use one of {', '.join(methods)}")
    return make(method, group, **options)

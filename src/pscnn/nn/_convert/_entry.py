"""The entry point."""

from __future__ import annotations

from typing import Any, Literal

from torch import fx, nn

from pscnn.groups import Group, direct_sum
from pscnn.likelihood import Likelihood
from pscnn.nn._convert._registry import kind_of
from pscnn.nn._convert._trace import Tracer, read
from pscnn.nn._convert._values import Recipe
from pscnn.nn._convert._walk import rewrite
from pscnn.nn._field_type import FieldType


def convert(
    model: nn.Module,
    group: Group,
    bandlimit: int = 2,
    *,
    fields: Literal["irreps", "regular"] = "irreps",
    frequency: int = 2,
    in_type: FieldType | None = None,
    out_type: FieldType | None = None,
    **density: Any,
) -> fx.GraphModule:
    """The partially equivariant version of a plain CNN for images or volumes, layer by layer.

    Convolutions become steerable ones, each with a density of its own; normalisation, nonlinearities, pooling and
    dropout become those that commute with H; residual sums and concatenations stay. Where features are flattened for
    the head, a ``Linear`` with a density first maps them to as many invariant ones as the head expects; the head is
    copied with its weights. Other weights start anew. All densities are uniform at first: the network is equivariant.
    Networks without a head give as many invariant channels as the model has.

    To be exactly equivariant on the grid, strided layers must meet maps that they sample symmetrically: (size +
    2·padding − kernel_size) divisible by the stride, for instance odd sizes with padding kernel_size // 2. Pooling
    with an even window n is centred on pixels, like a window of n − 1, and rounds odd sizes up.

    Args:
        model: A CNN that ``torch.fx`` can trace; it is not changed.
        group: H, acting on the plane for 2D networks and on space for 3D ones.
        bandlimit: L of the densities.
        fields: "irreps" for copies of all irreps up to ``frequency`` with gates for nonlinearities; "regular" for
            copies of the regular representation of a finite group, on which the model's own nonlinearities act.
            As many copies as come closest to the model's channels, at least one.
        frequency: The highest frequency of "irreps" fields.
        in_type: Type of the input; scalars by default.
        out_type: Type of an output that is an image or volume; as many scalars as the model has channels by default.
        density: Further options of ``Likelihood``, such as ``alignment="construction"``.

    Returns:
        A ``torch.fx.GraphModule`` with the model's names of modules, in the model's mode.

    Raises:
        ValueError: If the model cannot be traced, or some of its operations have no equivariant counterpart; the
            message names each with a reason.

    Shape:
        As the model; sizes may differ by one after pooling with even windows.

    Example:
        >>> import pscnn, torch
        >>> from pscnn.groups import O2
        >>> plain = nn.Sequential(
        ...     nn.Conv2d(1, 12, 5, padding=2), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        ...     nn.Conv2d(12, 24, 3), nn.BatchNorm2d(24), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        ...     nn.Linear(24, 10),
        ... )
        >>> model = convert(plain, O2()).eval()
        >>> x = torch.randn(2, 1, 29, 29)
        >>> model(x).shape
        torch.Size([2, 10])
        >>> torch.allclose(model(x), model(x.rot90(1, (2, 3))), atol=1e-5)
        True
        >>> list(pscnn.likelihoods(model))
        ['0', '4', 'invariant']
    """
    if not isinstance(group, Group):
        raise TypeError(f"convert: group must be a group such as O2(), got {group!r}")
    if fields not in ("irreps", "regular"):
        raise ValueError(f"convert: fields must be 'irreps' or 'regular', got {fields!r}")
    if fields == "regular" and group.order is None:
        raise ValueError(f"convert: {group.name} is infinite and has no regular fields; use fields='irreps'")
    for name, given in (("in_type", in_type), ("out_type", out_type)):
        if given is not None and given.group != group:
            raise ValueError(f"convert: {name} is over {given.group.name}, the network over {group.name}")
    field = group.regular if fields == "regular" else direct_sum(list(group.irreps(frequency)))

    def new_density() -> Likelihood:
        return Likelihood(group, bandlimit, **density)

    new_density()  # so that wrong options are not put down to the model
    if Tracer().is_leaf_module(model, ""):
        model = nn.Sequential(model).train(model.training)  # one layer: called, not looked into
    converted = rewrite(read(model, kind_of), Recipe(field, new_density, in_type, out_type))
    return converted.train(model.training)

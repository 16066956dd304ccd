"""Plain networks, built with a method."""

import copy
import inspect
from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any

from torch import nn as tnn

from pscnn import nn
from pscnn._memory import afford
from pscnn._words import short
from pscnn.groups import O2, SO3, Group, parse
from pscnn.likelihood import Likelihood
from pscnn.measures import Mixture
from pscnn.models._methods import METHODS, WRAPPERS

MOST = 10**6
"""Channels or classes of a network, at most."""


def by_method(plain: tnn.Module, method: str, group: Group | str, **options: Any) -> tnn.Module:
    """A plain network of ``torch.nn`` layers, built with a method: ``pscnn.nn.convert`` with other layers.

    Methods change convolutions. What else has weights (transposed convolutions, excitation) is equivariant with all
    of them, and has a density where the method has densities.

    In a training loop of your own, add ``models.penalty`` of the network to the loss if it is not None, and call
    ``models.advance`` before every step: without it the schedule of "relaxation" and the multipliers of "ace" stay as
    they start, and what "augment" and "augerino" draw depends on torch's random state instead of the step.

    Args:
        plain: What ``nn.convert`` can convert; it is not changed. For "cnn", "augment" and "augerino" any network.
        method: "p-scnn" for what ``nn.convert`` gives, or another one of ``pscnn.models.METHODS``, such as "scnn"
            (equivariant), "restricted" (free after ``nn.RestrictHere``), "rpp" (a free convolution beside every
            steerable one) or "twin" (free convolutions only). "cnn" is a copy of the network, with its weights;
            "augment" and "augerino" wrap one and transform its inputs, by H or by a learnt part.
        group: H, or its name.
        options: Those of ``nn.convert``: ``bandlimit``, ``fields``, ``frequency``, ``in_type``, ``out_type`` and those
            of densities. "cnn" has no use for them, "augment" and "augerino" for the types only, and methods without
            densities none for those of densities. Where "augment" and "augerino" wrap a network that gives maps, they
            need the ``out_type``.

    Example:
        >>> import torch
        >>> plain = tnn.Sequential(tnn.Conv2d(1, 8, 3), tnn.ReLU(), tnn.Conv2d(8, 2, 3))
        >>> by_method(plain, "rpp", "C4")(torch.randn(1, 1, 7, 7)).shape
        torch.Size([1, 2, 3, 3])
    """
    if not isinstance(plain, tnn.Module):
        raise TypeError(f"by_method: the network must be a torch.nn.Module, got {short(plain)}")
    _check_names(f"method {method!r}", options, _options_of(method))
    if method == "cnn":
        return copy.deepcopy(plain)
    if method not in METHODS and method not in WRAPPERS:
        raise ValueError(f"unknown method {method!r}: use one of {', '.join(['cnn', *METHODS, *WRAPPERS])}")
    group = group if isinstance(group, Group) else parse(group)
    if method in WRAPPERS:
        return _wrapped(plain, method, group, **options)
    return nn.convert(plain, group, method=METHODS[method], **options)


def _wrapped(
    plain: tnn.Module,
    method: str,
    group: Group,
    in_type: nn.FieldType | None = None,
    out_type: nn.FieldType | None = None,
    **options: Any,
) -> tnn.Module:
    """A copy of the network, with its inputs transformed; scalars, as many as its first convolution takes."""
    first = next((m for m in plain.modules() if isinstance(m, tnn.Conv2d | tnn.Conv3d)), None)
    if first is not None and isinstance(first, tnn.Conv2d) != (group.dimension == 2):
        raise ValueError(f"{group.name} acts on {group.dimension} axes, the network begins with a {first}")
    wrapper, count = WRAPPERS[method], 1 if first is None else first.in_channels
    in_type = in_type or nn.FieldType(group, count * [group.trivial])
    own = {name: options[name] for name in _names(wrapper) if name in options}
    made = wrapper(copy.deepcopy(plain), in_type, out_type, **own).train(plain.training)
    if in_type.group != group:
        raise ValueError(f"by_method: in_type is over {in_type.group.name}, the network over {group.name}")
    return made


def torch_layers(dimension: int) -> SimpleNamespace:
    """The layers of ``torch.nn`` for images or volumes."""
    return SimpleNamespace(
        convolution=(tnn.Conv2d, tnn.Conv3d)[dimension - 2],
        norm=(tnn.BatchNorm2d, tnn.BatchNorm3d)[dimension - 2],
        max_pool=(tnn.MaxPool2d, tnn.MaxPool3d)[dimension - 2],
        global_pool=(tnn.AdaptiveAvgPool2d, tnn.AdaptiveAvgPool3d)[dimension - 2],
    )


def default_group(network: str, group: Group | str | None, dimension: int) -> Group:
    """The given group, or O(2) for images and SO(3) for volumes; checked against the number of axes."""
    if dimension not in (2, 3):
        raise ValueError(f"{network}: dimension must be 2 for images or 3 for volumes, got {dimension!r}")
    if group is None:
        return O2() if dimension == 2 else SO3()
    group = group if isinstance(group, Group) else parse(group)
    if group.dimension != dimension:
        raise ValueError(f"{network}: {group.name} acts on {group.dimension} axes, give dimension={group.dimension}")
    return group


def check_options(network: Callable[..., tnn.Module], method: str, options: dict[str, Any]) -> None:
    """Name the first option that is none of a network's, of ``nn.convert`` or of the method's measure."""
    _check_names(network.__name__, options, _names(network) | _options_of(method))


def _options_of(method: str) -> dict[str, None]:
    """Those of ``nn.convert`` and of the method's measure."""
    known = _names(nn.convert, *_made_with(method))
    return {name: None for name in known if name not in ("method", "weights")}


def check_density(method: str, options: Any) -> None:
    """Refuse what are no options of the method's measure, or of what is wrapped around the network."""
    if not isinstance(options, Mapping):
        example = "{'alignment': 'construction'}"
        raise TypeError(f"density must be a mapping of options such as {example}, got {short(options)}")
    known = _names(*_made_with(method))
    known.pop("bandlimit", None)  # is an option of the network
    _check_names("density", options, known)


def _made_with(method: str) -> tuple[Callable[..., Any], ...]:
    """What takes the options of a method's measure; of methods that have none, of densities."""
    if method in WRAPPERS:
        return (WRAPPERS[method],)
    one = METHODS.get(method)
    return (one.density, Mixture) if one and one.has_measures and not one.has_densities else (Likelihood,)


def _names(*makers: Callable[..., Any]) -> dict[str, None]:
    parameters = [p for make in makers for p in inspect.signature(make).parameters.values()]
    return dict.fromkeys(p.name for p in parameters if p.default is not p.empty)


def _check_names(what: str, options: Mapping[Any, Any], known: Collection[str]) -> None:
    for name in options:
        if name not in known:
            raise TypeError(f"{what} has no option {name!r}; it has {', '.join(known) or 'none'}")


def check_counts(most: float = MOST, /, **counts: object) -> None:
    """Name the first that is no whole number of 1 or more, or more than anybody means."""
    for name, given in counts.items():
        if not isinstance(given, int) or given < 1:
            raise ValueError(f"{name} must be a whole number of 1 or more, got {given!r}")
        if given > most:
            raise ValueError(f"{name} must be {most} or less, got {given}")


def check_width(width: float, widest: float, kernel: int, dimension: int, name: str = "width") -> None:
    """Refuse a network whose widest layers take too much memory, before any is built.

    Args:
        width: As it was given.
        widest: Fields or channels of these layers.
        kernel: Their side length.
        dimension: Axes of their maps.
        name: Of the option.
    """
    afford(kernel**dimension * widest * widest, f"a network of {name} {width:g}", f"use a smaller {name}")

"""What is known while a network is converted: feature maps, kinds of operations, what new layers are made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import fx, nn

from pscnn._extras import PscnnError
from pscnn.groups import Group, Representation
from pscnn.likelihood import Likelihood
from pscnn.nn._field_type import FieldType
from pscnn.nn._fourier import is_permuted
from pscnn.nn._nonlinearity import GatedNonlinearity

if TYPE_CHECKING:
    from pscnn.nn._convert._writer import Writer


class NotConvertibleError(PscnnError, ValueError):
    """Some operation has no equivariant counterpart."""


@dataclass(frozen=True)
class Map:
    """What is known of a feature map.

    Attributes:
        fields: Its features.
        channels: How many channels it has in the model.
        gates: Whether every field has its gates before it.
        sure: False after something that could not be converted: what does not fit is then no further problem.
    """

    fields: FieldType
    channels: int
    gates: bool = False
    sure: bool = True

    @property
    def type(self) -> FieldType:
        """The fields, with their gates."""
        return with_gates(self.fields) if self.gates else self.fields


@dataclass(frozen=True)
class Vector:
    """Invariant features, (B, features): from here on everything is as in the model."""

    features: int | None
    sure: bool = True


Value = Map | Vector | None  # None is all that is not a feature: sizes, parameters


class Kind(NamedTuple):
    """A kind of operation, and how it is written into the new graph; without ``convert`` there is no counterpart."""

    name: str
    convert: Callable[[Writer, fx.Node, Map], Value] | None = None
    modules: tuple[type[nn.Module], ...] = ()
    operations: tuple[str, ...] = ()  # functions and methods, besides those that stand for one of the modules
    channelwise: bool = False  # it acts on all channels of a field alike: gates pass beside the features
    makes_fields: bool = False  # the type of its output is free to choose


@dataclass(frozen=True)
class Recipe:
    """What new layers are made of: copies of a field, a density each; and the types at both ends, if given."""

    field: Representation
    new_density: Callable[[], Likelihood]
    in_type: FieldType | None
    out_type: FieldType | None

    @property
    def group(self) -> Group:
        """H."""
        return self.field.group

    def fields(self, channels: int) -> FieldType:
        """As many fields as come closest to a number of channels."""
        copies = max(1, math.floor(channels / self.field.size + 0.5))
        return FieldType(self.group, copies * [self.field])

    def scalars(self, channels: int) -> FieldType:
        """As many invariant channels."""
        return FieldType(self.group, channels * [self.group.trivial])


def with_gates(fields: FieldType) -> FieldType:
    """The fields with one gate per irrep before each."""
    return GatedNonlinearity(fields).in_type


def are_scalars(fields: FieldType) -> bool:
    """Whether all channels are invariant."""
    return all(map(_is_scalar, set(fields.representations)))


def allow_any_function(fields: FieldType) -> bool:
    """Whether functions of single channels commute with H."""
    return all(_is_scalar(rho) or is_permuted(rho) for rho in set(fields.representations))


def _is_scalar(rho: Representation) -> bool:
    return all(psi.is_trivial for psi in rho.irreps)


def as_tuple(value: Any) -> tuple[Any, ...]:
    """A number or several as a tuple."""
    return tuple(value) if isinstance(value, tuple | list) else (value,)

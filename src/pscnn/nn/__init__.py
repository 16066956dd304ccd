"""Layers: tensors in, tensors out; the types live on the modules, which fit into ``torch.nn.Sequential``."""

from pscnn.nn._bases import TileBasis
from pscnn.nn._batch_norm import BatchNorm
from pscnn.nn._conv import Conv2d, Conv3d, Linear, expand_once
from pscnn.nn._convert import convert
from pscnn.nn._export import export
from pscnn.nn._fast import convolve
from pscnn.nn._field_norm import FieldStatistics, affine
from pscnn.nn._field_type import FieldType
from pscnn.nn._fourier import FourierBatchNorm, FourierPointwise, QuotientFourierPointwise
from pscnn.nn._gated_batch_norm import GatedBatchNorm
from pscnn.nn._nonlinearity import GatedNonlinearity, NormNonlinearity
from pscnn.nn._projection import equivariant_part, steered_kernel
from pscnn.nn._restriction import Restriction
from pscnn.nn._spatial import AvgPoolAntialiased, DiskMask, FieldDropout, Upsample
from pscnn.nn._steerable import SteerableMap

__all__ = [
    "AvgPoolAntialiased",
    "BatchNorm",
    "Conv2d",
    "Conv3d",
    "DiskMask",
    "FieldDropout",
    "FieldStatistics",
    "FieldType",
    "FourierBatchNorm",
    "FourierPointwise",
    "GatedBatchNorm",
    "GatedNonlinearity",
    "Linear",
    "NormNonlinearity",
    "QuotientFourierPointwise",
    "Restriction",
    "SteerableMap",
    "TileBasis",
    "Upsample",
    "affine",
    "convert",
    "convolve",
    "equivariant_part",
    "expand_once",
    "export",
    "steered_kernel",
]

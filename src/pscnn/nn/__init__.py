"""Layers: tensors in, tensors out; the types live on the modules, which fit into ``torch.nn.Sequential``."""

from pscnn.nn._ahead import compile_ahead
from pscnn.nn._bases import TileBasis
from pscnn.nn._batch_norm import BatchNorm
from pscnn.nn._centred import Centred
from pscnn.nn._conv import Conv2d, Conv3d, Linear, expand_once
from pscnn.nn._conv_transpose import ConvTranspose2d, ConvTranspose3d
from pscnn.nn._convert import Method, RestrictHere, convert
from pscnn.nn._export import export
from pscnn.nn._factors import FieldProduct, FieldScale, SqueezeExcitation
from pscnn.nn._fast import average_pool, convolve
from pscnn.nn._field_norm import FieldStatistics, affine
from pscnn.nn._field_type import FieldType
from pscnn.nn._fourier import FourierBatchNorm, FourierPointwise, QuotientFourierPointwise, function_field, softplus
from pscnn.nn._gated_batch_norm import GatedBatchNorm
from pscnn.nn._max_pool import NormMaxPool
from pscnn.nn._nonlinearity import GatedNonlinearity, Gates, NormNonlinearity
from pscnn.nn._pixel_conv import PixelConv
from pscnn.nn._projection import equivariant_part, steered_kernel
from pscnn.nn._restriction import Restriction
from pscnn.nn._sample_norm import GroupNorm, InstanceNorm, LayerNorm
from pscnn.nn._spatial import AvgPoolAntialiased, DiskMask, FieldDropout, StochasticDepth, Upsample
from pscnn.nn._steerable import SteerableMap
from pscnn.nn._together import expand_together

__all__ = [
    "AvgPoolAntialiased",
    "BatchNorm",
    "Centred",
    "Conv2d",
    "Conv3d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "DiskMask",
    "FieldDropout",
    "FieldProduct",
    "FieldScale",
    "FieldStatistics",
    "FieldType",
    "FourierBatchNorm",
    "FourierPointwise",
    "GatedBatchNorm",
    "GatedNonlinearity",
    "Gates",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "Linear",
    "Method",
    "NormMaxPool",
    "NormNonlinearity",
    "PixelConv",
    "QuotientFourierPointwise",
    "RestrictHere",
    "Restriction",
    "SqueezeExcitation",
    "SteerableMap",
    "StochasticDepth",
    "TileBasis",
    "Upsample",
    "affine",
    "average_pool",
    "compile_ahead",
    "convert",
    "convolve",
    "equivariant_part",
    "expand_once",
    "expand_together",
    "export",
    "function_field",
    "softplus",
    "steered_kernel",
]

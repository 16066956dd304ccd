"""What convolutions and linear layers share: a kernel that is expanded when it is needed, and applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pscnn._types import Array
from pscnn.nn._expansion import Shape, wanted_dtype
from pscnn.nn._slot_kernel import SlotKernel


def _saved_elsewhere() -> bool:
    """Whether what the way back needs is not kept as it is, as where activations are calculated again.

    Then it matters in which call a kernel is made. Before torch 2.6 nobody tells.
    """
    asked = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return asked is not None and asked(True) is not None


class SteerableMap(SlotKernel):
    """A map between field types whose kernel is K(x) = Σ_slots B_slot(x) · (Λ_i · w_slot); ``SlotKernel`` makes it."""

    _packs = False  # whether it applies kernels as ``packed_kernel`` gives them
    _cache: tuple[Any, Any, tuple[Tensor, Tensor | None]] | None = None
    _held: dict[Any, tuple[Tensor, Tensor | None]] | None = None
    _ready: Tensor | None = None  # a kernel for one call that was made together with those of other layers

    @property
    def packs(self) -> bool:
        """Whether its kernel can be made together with those of other layers."""
        return self._packs and self._shape is not None

    @property
    def made_of(self) -> Shape:
        """What its kernel is made of, if it ``packs``."""
        assert self._shape is not None
        return self._shape

    def check(self, x: Tensor, spatial: int | None = None) -> None:
        """Raise unless x has the shape and the precision of the layer; under autocast, whatever precision."""
        super().check(x, spatial)
        if isinstance(x, Tensor) and x.dtype != self.weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise TypeError(
                f"{type(self).__name__}: the layer is in {self.weight.dtype}, got input in {x.dtype}: "
                f"use x.to({self.weight.dtype}), or model.to({x.dtype})"
            )

    def set_bases(self, matrices: Sequence[Array]) -> None:
        """Use other basis kernels.

        Args:
            matrices: For every tile, in place of ``bases()[k].matrix`` and of the same shape.
        """
        super().set_bases(matrices)
        self._cache = None

    def kernel_and_bias(self, packed: bool = False) -> tuple[Tensor, Tensor | None]:
        """Kernel and bias; in eval mode without gradients, expanded once and reused until a parameter changes.

        A change behind autograd's back, through ``parameter.data``, cannot be seen: call ``eval()`` after one.

        Args:
            packed: Whether the kernel may be as ``packed_kernel`` gives it in training.
        """
        make = self.packed_kernel if packed else self.kernel
        if torch.compiler.is_compiling():
            return make(), self.full_bias()
        fleeting = self.training or torch.is_grad_enabled()
        parameters = [] if fleeting else list(self.parameters())
        if fleeting or not all(isinstance(p, nn.Parameter) and not p.is_inference() for p in parameters):
            # An optimiser step may follow, and fused ones do not count up the version of what they change.
            self._cache = None
            ready, self._ready = self._ready, None
            if packed and ready is not None and ready.dtype == wanted_dtype(self.weight) and not _saved_elsewhere():
                return ready, self.full_bias()
            if self._held is None:
                return make(), self.full_bias()
            mode = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), packed, torch.is_autocast_enabled("cuda")
            if mode not in self._held:
                self._held[mode] = make(), self.full_bias()
            return self._held[mode]
        state = [] if self.likelihood is None else list(self.likelihood.buffers())
        key = [(id(p), p._version, p.data_ptr(), p.dtype) for p in (*parameters, *state)]
        if self._cache is None or self._cache[0] != key:
            # What lives keeps its id.
            self._cache = key, [parameters, state], (self.kernel(), self.full_bias())
        return self._cache[2]

    def forward(self, x: Tensor) -> Tensor:
        """Expand the kernel and apply it."""
        self.check(x, len(self._spatial))
        return self.convolve(x, *self.kernel_and_bias(packed=self._packs))

    def convolve(self, x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """Apply a given kernel and bias as this layer applies its own."""
        raise NotImplementedError

    def _fill(self, cls: type[Any], kernel: Tensor, bias: Tensor | None, *options: Any, **more: Any) -> Any:
        """A torch layer of this one's channels with a given kernel and bias."""
        more |= {"bias": bias is not None, "device": self.weight.device, "dtype": self.weight.dtype}
        plain = cls(self.in_type.size, self.out_type.size, *options, **more)
        with torch.no_grad():
            plain.weight.copy_(kernel)
            if bias is not None:
                plain.bias.copy_(bias)
        return plain.train(self.training)

    def train(self, mode: bool = True) -> SteerableMap:
        """Set the mode; what was expanded before is forgotten."""
        self._cache = self._ready = None
        super().train(mode)
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> SteerableMap:
        self._cache = self._ready = None
        if self._held is not None:
            self._held.clear()
        super()._apply(fn, recurse)
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": None, "_held": None, "_ready": None}

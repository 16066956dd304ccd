"""How much of an example the layers of a network see."""

import torch
from torch import Tensor, nn

from pscnn._modes import kept_modes
from pscnn.data import own
from pscnn.densities import likelihoods
from pscnn.nn import SteerableMap


def receptive_fields(model: nn.Module, holds: own.About) -> dict[str, int]:
    """Per density, how many pixels of the input the centre of its first layer's output depends on, along one side."""
    x = torch.randn(1, holds.channels, *holds.shape, requires_grad=True)
    out = {}
    with kept_modes(model):
        model.eval()
        for name, likelihood in likelihoods(model).items():
            layer = next(m for m in model.modules() if isinstance(m, SteerableMap) and m.likelihood is likelihood)
            seen: list[Tensor] = []
            with layer.register_forward_hook(lambda *args, seen=seen: seen.append(args[2])):
                model(x)
            centre = seen[0][0].movedim(0, -1)[tuple(n // 2 for n in seen[0].shape[2:])]
            (gradient,) = torch.autograd.grad((centre * torch.randn_like(centre)).sum(), x)
            touched = torch.nonzero(gradient[0].abs().amax(0) > 0)
            out[name] = int((touched.amax(0) - touched.amin(0) + 1).max()) if len(touched) else 0
    return out

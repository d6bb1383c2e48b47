"""Batch normalization by the images of one GPU, for papers that split a batch over several."""

from typing import final

import torch
from torch import Tensor, nn


@final
class GhostBatchNorm2d(nn.BatchNorm2d):
    """Batch normalization of a few images at a time, also called ghost batch normalization.

    Each of several GPUs normalizes its share of a batch by the images it has, which makes the
    statistics noisier. This layer does the same on one GPU. Its running statistics are the mean
    over all shares; ``nn.DataParallel`` keeps those of the first GPU alone.

    Args:
        norm: the layer to replace; its weights and buffers are taken over.
        images: images of a share, or the next larger number that divides the batch.
    """

    def __init__(self, norm: nn.BatchNorm2d, images: int) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum, device="meta")
        self.weight, self.bias = norm.weight, norm.bias
        for name, buffer in norm.named_buffers():
            setattr(self, name, buffer)
        self.images = images

    def forward(self, features: Tensor) -> Tensor:
        """Normalize ``[b c h w]``; in evaluation mode as ``nn.BatchNorm2d`` does."""
        shares = self.shares(len(features)) if self.training else 1
        if shares == 1:
            return super().forward(features)
        exact = torch.promote_types(features.dtype, torch.float32)
        shared = features.to(exact).unflatten(0, (shares, -1))  # [s b c h w]
        variance, mean = torch.var_mean(shared, (1, 3, 4), correction=0, keepdim=True)
        self._track(mean, variance, shared[0, :, 0].numel())
        scale = (variance + self.eps).rsqrt() * self.weight[:, None, None]
        normed: Tensor = (shared - mean) * scale + self.bias[:, None, None]
        return normed.flatten(0, 1).to(features.dtype)

    def shares(self, batch: int) -> int:
        """Return the number of equal shares of at least ``images`` images in a batch."""
        most = max(1, batch // self.images)
        return next(count for count in range(most, 0, -1) if batch % count == 0)

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor, count: int) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        momentum = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        unbiased = variance * (count / max(1, count - 1))
        for running, now in ((self.running_mean, mean), (self.running_var, unbiased)):
            running.lerp_(now.mean(0).flatten().to(running.dtype), momentum)


def use_ghost_batches(network: nn.Module, images: int) -> None:
    """Make every ``nn.BatchNorm2d`` of a network normalize so many images at a time."""
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, name, GhostBatchNorm2d(child, images).train(child.training))

"""The network of a run: built for its images, on its device, in every process."""

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from torchcaps.errors import UsageError
from torchcaps.models import Network, build
from torchcaps.recipes import Recipe
from torchcaps.train.averaging import NORMS
from torchcaps.train.images import Sources
from torchcaps.train.norms import share_statistics
from torchcaps.train.optimizers import coefficients
from torchcaps.train.process import Process

__all__ = ["check_recipe", "hasten_statistics", "make_network", "spread"]


def check_recipe(recipe: Recipe) -> None:
    """Refuse settings that do not fit the network or the loss, before anything is loaded."""
    with torch.device("meta"):
        network = build(recipe.network, iterations=recipe.iterations)
    if recipe.label_smoothing:
        scores, targets = torch.zeros(1, network.n_classes), torch.zeros(1, dtype=torch.long)
        recipe.loss(scores, targets, step=torch.zeros(()), smoothing=recipe.label_smoothing)
    if recipe.reconstruction_weight and getattr(network, "decoder", None) is None:
        raise UsageError(f"{recipe.network} has no decoder: reconstruction_weight must be 0")
    if (recipe.coefficient_lr or recipe.coefficient_every > 1) and not coefficients(network):
        raise UsageError(
            f"{recipe.network} has no coefficients: coefficient_lr and coefficient_every are for "
            "discriminative routing"
        )
    if recipe.norm_batch and not any(isinstance(m, nn.BatchNorm2d) for m in network.modules()):
        raise UsageError(
            f"{recipe.network} has no batch normalization of feature maps: norm_batch must be 0"
        )


def make_network(recipe: Recipe, seed: int, sources: Sources, device: torch.device) -> Network:
    """The recipe's network, adapted to images of another shape or other classes."""
    wanted = {"image_shape": sources.image_shape, "n_classes": sources.n_classes}
    with torch.device("meta"):
        usual = build(recipe.network)
    changes: dict[str, Any] = {
        key: value for key, value in wanted.items() if getattr(usual, key) != value
    }
    torch.manual_seed(seed)
    network = build(recipe.network, iterations=recipe.iterations, **changes).to(device)
    if recipe.norm_batch:
        share_statistics(network, recipe.norm_batch)
    if device.type == "cuda" and recipe.channels_last:
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                weight = module.weight
                weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    return network


def hasten_statistics(network: Network, steps: int) -> None:
    """Let running statistics forget where they began, which takes 5 / momentum steps.

    Keras' momentum of 0.01 is for long runs: after 163 steps, one an epoch of a small folder, a
    fifth of the mean and variance would still be the 0 and 1 they start from.
    """
    for module in network.modules():
        if isinstance(module, NORMS) and module.momentum is not None:
            module.momentum = max(module.momentum, min(0.1, 5 / max(1, steps)))


def spread(
    network: Network, recipe: Recipe, seed: int, process: Process, *, sync_batch_norm: bool
) -> nn.Module:
    """The network in every process, its gradients averaged over them."""
    on_gpu = process.device.type == "cuda"
    if sync_batch_norm:
        if not on_gpu:
            raise UsageError("sync_batch_norm works on GPUs only")
        if recipe.norm_batch:
            raise UsageError(
                f"{recipe.name} normalizes {recipe.norm_batch} images at a time and "
                "sync_batch_norm those of all GPUs: set norm_batch to 0, or leave it out"
            )
        nn.SyncBatchNorm.convert_sync_batchnorm(network)
    # the same weights, other dropout
    torch.manual_seed(seed * 1_000_003 + process.rank)
    ids = [process.device.index] if on_gpu else None
    idle = bool(getattr(network, "decoder", None)) and not recipe.reconstruction_weight
    return DistributedDataParallel(network, device_ids=ids, find_unused_parameters=idle)

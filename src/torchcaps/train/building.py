"""The network of a run: built for its images, perhaps pretrained, compiled and distributed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from torchcaps.capsules import Output
from torchcaps.errors import UsageError
from torchcaps.models import Network, build
from torchcaps.models.weights.transfer import transfer
from torchcaps.recipes import Recipe
from torchcaps.recipes.losses import is_for_classes
from torchcaps.train.compiling import compiled
from torchcaps.train.evaluation.evaluator import NORMS
from torchcaps.train.evaluation.trained import find_trained, load_trained
from torchcaps.train.images import Sources
from torchcaps.train.norms import use_ghost_batches
from torchcaps.train.optimizers import coefficients
from torchcaps.train.process import Process


def check_recipe(recipe: Recipe) -> None:
    """Refuse settings that do not fit the network or the loss, before images are loaded."""
    if not isinstance(recipe, Recipe):
        hint = f"torchcaps.recipes.get({recipe!r})" if isinstance(recipe, str) else "recipes.get"
        raise UsageError(f"train takes a Recipe, not {recipe!r}: get one with {hint}")
    with torch.device("meta"):
        network = build(recipe.network, iterations=recipe.iterations)
    check_targets(recipe, network)
    if recipe.label_smoothing:
        scores, targets = torch.zeros(1, network.n_classes), torch.zeros(1, dtype=torch.long)
        recipe.loss(
            scores,
            targets,
            step=torch.zeros(()),
            share=torch.zeros(()),
            smoothing=recipe.label_smoothing,
        )
    if recipe.reconstruction_weight and getattr(network, "decoder", None) is None:
        raise UsageError(f"{recipe.network} has no decoder: reconstruction_weight must be 0")
    has_coefficient_settings = recipe.coefficient_lr or recipe.coefficient_every > 1
    has_coefficient_settings = has_coefficient_settings or recipe.coefficient_penalty is not None
    if has_coefficient_settings and not coefficients(network):
        raise UsageError(
            f"{recipe.network} has no coefficients: coefficient_lr, coefficient_penalty and "
            "coefficient_every are for discriminative routing"
        )
    if recipe.norm_batch and not any(isinstance(m, nn.BatchNorm2d) for m in network.modules()):
        raise UsageError(
            f"{recipe.network} has no batch normalization of feature maps: norm_batch must be 0"
        )


def check_targets(recipe: Recipe, network: Network) -> None:
    """Refuse a network or a loss of classes for numbers, and the other way round."""
    wanted = "numbers" if recipe.targets else "classes"
    if network.predicts != wanted:
        raise UsageError(
            f"{recipe.name} is about {wanted} and {network.name} predicts {network.predicts}: "
            "choose a network that fits, or set the targets of the recipe"
        )
    if recipe.targets and is_for_classes(recipe.loss):
        raise UsageError(
            f"{recipe.name} predicts numbers and its loss is for classes: take squared_error"
        )


def load_start(path: str | Path | None, recipe: Recipe) -> Network | None:
    """Load the network that a run starts from; refuse one that the recipe does not train."""
    if path is None:
        return None
    start = load_trained(find_trained(Path(path)))
    start.known_preprocessing()
    with torch.device("meta"):
        network = build(recipe.network)
    if type(start) is not type(network):
        raise UsageError(
            f"{path} holds the network {start.name}, and {recipe.name} trains {recipe.network}: "
            f"choose a recipe that trains a {type(start).__name__}"
        )
    return start


def make_network(
    recipe: Recipe,
    seed: int,
    sources: Sources,
    device: torch.device,
    start: Network | None = None,
) -> Network:
    """Build the recipe's network, adapted to images of another shape or other classes.

    With ``start`` it takes over every weight of that network that fits.
    """
    needed = {"image_shape": sources.image_shape, "n_classes": sources.n_classes}
    with torch.device("meta"):
        published = build(recipe.network)
    changes: dict[str, Any] = {
        key: value for key, value in needed.items() if getattr(published, key) != value
    }
    if start is not None and start.name == recipe.network and "definition" in start.overrides:
        changes["definition"] = start.overrides["definition"]
    torch.manual_seed(seed)
    network = build(recipe.network, iterations=recipe.iterations, **changes)
    if start is not None:
        transfer(start, network)
    network = network.to(device)
    if recipe.norm_batch:
        use_ghost_batches(network, recipe.norm_batch)
    if device.type == "cuda" and recipe.channels_last:
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                weight = module.weight
                weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    return network


def raise_norm_momentum(network: Network, steps: int) -> None:
    """Raise the momentum of running statistics so that a short run forgets their initial values.

    Forgetting takes 5 / momentum steps. Keras' momentum of 0.01 suits long runs only: after 163
    steps a fifth of the mean and variance would still be their initial 0 and 1.
    """
    for module in network.modules():
        if isinstance(module, NORMS) and module.momentum is not None:
            module.momentum = max(module.momentum, min(0.1, 5 / max(1, steps)))


def make_forward(
    network: Network, recipe: Recipe, seed: int, process: Process, *, sync_batch_norm: bool
) -> Callable[..., Output]:
    """Return what a training step calls: the network, distributed and compiled where asked."""
    forward: Callable[..., Output] = network
    if process.world > 1:
        forward = distribute(network, recipe, seed, process, sync_batch_norm=sync_batch_norm)
    return compiled(forward) if recipe.compile else forward


def distribute(
    network: Network, recipe: Recipe, seed: int, process: Process, *, sync_batch_norm: bool
) -> nn.Module:
    """Wrap the network so that gradients are averaged over all processes."""
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
    # every process has the same weights and dropout of its own
    torch.manual_seed(seed * 1_000_003 + process.rank)
    ids = [process.device.index] if on_gpu else None
    idle = bool(getattr(network, "decoder", None)) and not recipe.reconstruction_weight
    return DistributedDataParallel(network, device_ids=ids, find_unused_parameters=idle)

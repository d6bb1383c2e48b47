"""Optimizers as recipes describe them, and their state as named tensors."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchcaps.layers import CapsuleLayer
from torchcaps.optim import Muon
from torchcaps.recipes import Recipe
from torchcaps.recipes.schedules import Clock
from torchcaps.routing.base import Routing


def coefficients(network: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters that climb their routing's objective, with their names."""
    return [
        (f"{name}.{key}", module.get_parameter(key))
        for name, module in network.named_modules()
        if isinstance(module, Routing)
        for key in module.objective_parameters
    ]


def make_optimizers(
    recipe: Recipe, network: nn.Module, device: torch.device
) -> tuple[Optimizer, Optimizer | None]:
    """Return the optimizer of the weights, and that of a routing's own objective if it has one."""
    coefficient_pairs = coefficients(network) if recipe.coefficient_lr else []
    ids = {id(parameter) for _, parameter in coefficient_pairs}
    weights = [p for p in network.parameters() if id(p) not in ids]
    groups: list[dict[str, Any]] = [{"params": weights, "weight_decay": recipe.weight_decay}]
    undecayed = set() if recipe.decay_all else _undecayed(network)
    if not recipe.decay_votes:
        undecayed |= {id(m.weight) for m in network.modules() if isinstance(m, CapsuleLayer)}
    if undecayed:
        groups = [
            {
                "params": [p for p in weights if id(p) not in undecayed],
                "weight_decay": recipe.weight_decay,
            },
            {"params": [p for p in weights if id(p) in undecayed], "weight_decay": 0.0},
        ]
    if _class_of(recipe.optimizer) is Muon:
        groups = _by_kind(groups, network)
    groups = [group for group in groups if group["params"]]
    main = recipe.optimizer(groups, **_options(recipe.optimizer, recipe.lr, device))
    if not coefficient_pairs:
        return main, None
    options = _options(recipe.coefficient_optimizer, recipe.coefficient_lr, device)
    return main, recipe.coefficient_optimizer(
        [p for _, p in coefficient_pairs], maximize=True, **options
    )


def _by_kind(groups: list[dict[str, Any]], network: nn.Module) -> list[dict[str, Any]]:
    """Split groups into convolutions, vote weights, and the parameters that Muon leaves to Adam."""
    kinds = {}
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            kinds[id(module.weight)] = "filters"
        elif isinstance(module, CapsuleLayer):
            kinds[id(module.weight)] = "votes"
    return [
        {**group, "params": [p for p in group["params"] if kinds.get(id(p)) == kind], "kind": kind}
        for group in groups
        for kind in ("filters", "votes", None)
    ]


def _class_of(optimizer: Callable[..., Optimizer]) -> Callable[..., Optimizer]:
    """Return the class behind a partial."""
    return optimizer.func if isinstance(optimizer, partial) else optimizer


def _undecayed(network: nn.Module) -> set[int]:
    """Return the ids of parameters without weight decay: vectors, biases of any shape, norms."""
    return {
        id(parameter)
        for module in network.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.dim() < 2 or name.startswith(("bias", "beta")) or _is_norm(module)
    }


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower()


def _options(
    optimizer: Callable[..., Optimizer], lr: float, device: torch.device
) -> dict[str, object]:
    """Return the learning rate, and on a GPU the options that keep the host out of a step."""
    if device.type != "cuda":
        return {"lr": lr}
    known = signature(_class_of(optimizer)).parameters
    options: dict[str, object] = {"lr": torch.tensor(lr, device=device)}
    if "fused" in known:
        options["fused"] = True
    if "capturable" in known:
        options["capturable"] = True
    return options


def set_lr(optimizer: Optimizer, lr: float) -> None:
    """Set the learning rate, in place where a captured step reads it."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def optimizer_tensors(
    optimizer: Optimizer, names: Mapping[int, str], prefix: str
) -> dict[str, Tensor]:
    """Return the state of an optimizer as ``prefix/entry/parameter`` tensors.

    Args:
        optimizer: the optimizer.
        names: name of each parameter by its id.
        prefix: first part of every key.
    """
    tensors = {}
    for parameter, entries in optimizer.state.items():
        for entry, value in entries.items():
            if value is not None:
                key = f"{prefix}/{entry}/{names[id(parameter)]}"
                tensors[key] = torch.as_tensor(value).detach()
    return tensors


def restore_optimizer(
    optimizer: Optimizer,
    parameters: Iterable[tuple[str, nn.Parameter]],
    stored: Mapping[str, Tensor],
    prefix: str,
) -> None:
    """Load the tensors of :func:`optimizer_tensors` into an optimizer."""
    by_name = dict(parameters)
    optimized = {id(p) for group in optimizer.param_groups for p in group["params"]}
    optimizer.state.clear()
    for key, value in stored.items():
        start, _, rest = key.partition("/")
        entry, _, name = rest.partition("/")
        if start != prefix or id(by_name[name]) not in optimized:
            continue
        parameter = by_name[name]
        # a step count stays where the optimizer keeps it: on the GPU only where it is captured
        device = parameter.device
        if entry == "step" and not optimizer.defaults.get("capturable"):
            device = device if optimizer.defaults.get("fused") else torch.device("cpu")
        restored = value.to(device, copy=True)
        if restored.shape == parameter.shape:  # fused steps need the parameter's memory format
            restored = torch.empty_like(parameter, dtype=restored.dtype).copy_(restored)
        optimizer.state[parameter][entry] = restored


def lr_factor(recipe: Recipe, clock: Clock) -> float:
    """Return the factor of the learning rate at a step."""
    rise = recipe.warmup * clock.steps_per_epoch
    warm = min(1.0, (clock.step + 1) / rise) if rise >= 1 else 1.0
    return warm * recipe.schedule(clock)

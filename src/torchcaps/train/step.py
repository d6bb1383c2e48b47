"""One training step, and the same step captured as a CUDA graph and replayed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchcaps.capsules import Output
from torchcaps.captured.graphs import record, unchanged
from torchcaps.captured.precompilation import compile_gradient
from torchcaps.data import Batch
from torchcaps.functional import reconstruction_loss
from torchcaps.models import Network
from torchcaps.recipes import Recipe
from torchcaps.routing.base import Routing
from torchcaps.tensors import widest_float
from torchcaps.train.evaluation.score import autocast, n_sums, sums_of, targets_of
from torchcaps.train.optimizers import make_optimizers
from torchcaps.train.process import Process
from torchcaps.votes import Votes


class NonFiniteError(ArithmeticError):
    """The loss or a gradient is NaN or infinite; nothing was updated."""


def total_loss(
    recipe: Recipe, output: Output, batch: Batch, step: Tensor, *, steps: int = 1
) -> Tensor:
    """Return the recipe's loss of a batch at a step of so many, with the reconstruction loss."""
    share = step / steps
    scores = output.scores.float()
    targets = targets_of(batch, scores.shape[1])
    loss = recipe.loss(scores, targets, step=step, share=share, smoothing=recipe.label_smoothing)
    if recipe.reconstruction_weight and output.reconstruction is not None:
        reconstruction = output.reconstruction.float()
        originals = batch.images if batch.targets is None else batch.targets
        if reconstruction.dim() == 5:  # one error per object
            reconstruction, originals = reconstruction.flatten(0, 1), originals.flatten(0, 1)
            weight = recipe.reconstruction_weight * batch.labels.shape[1]
        else:
            weight = recipe.reconstruction_weight
        loss = loss + reconstruction_loss(
            reconstruction, originals, reduction=recipe.reconstruction, weight=weight
        )
    return loss


@dataclass
class Step:
    """One training step: forward, backward, update; loss and accuracy are summed on the device.

    Attributes:
        recipe: the recipe to train.
        network: the network to train.
        forward: the network, perhaps compiled or wrapped for several processes.
        optimizer: optimizer of the weights.
        ascent: optimizer of discriminative routing's coefficients, or None.
        process: this process.
        steps: length of the run, for losses that depend on the share that is done.
    """

    recipe: Recipe
    network: Network
    forward: Callable[..., Output]
    optimizer: Optimizer
    ascent: Optimizer | None
    process: Process
    steps: int = 1

    def __post_init__(self) -> None:
        device = self.process.device
        n = 2 + n_sums(self.recipe.measure, self.network.n_classes)
        self.meters = torch.zeros(n, dtype=widest_float(device), device=device)
        """Sums of losses, of what the score needs, and of images since the last reset."""
        self.taken = torch.zeros((), device=device)
        """Steps taken, for losses and updates that depend on it inside a captured step."""
        self.stops = torch.zeros((), device=device)
        """1 from the first step on that was not finite; these steps change nothing."""
        self.stopped = torch.zeros((), device=device)
        """The number of steps that changed nothing."""
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.network_parameters = list(self.network.parameters())
        self.votes: dict[str, Votes | Tensor] = {}
        self.decodes = bool(self.recipe.reconstruction_weight)
        # the device skips a bad step where the optimizer can; otherwise the host checks every step
        self.fused = bool(self.optimizer.defaults.get("fused"))
        capturable = bool(self.optimizer.defaults.get("capturable"))
        self.skips = device.type == "cuda" and (self.fused or capturable)
        for optimizer in (self.optimizer, self.ascent):
            if self.skips and optimizer is not None and optimizer.defaults.get("fused"):
                cast(Any, optimizer).found_inf = self.stops
        self.count = 0
        self.format = torch.contiguous_format
        if device.type == "cuda" and self.recipe.channels_last:
            self.format = torch.channels_last
        if self.ascent is not None:
            self._listen()

    def _listen(self) -> None:
        """Keep the votes of routings that have an objective, for the ascent on it."""
        for name, module in self.network.named_modules():
            if isinstance(module, Routing) and module.objective_parameters:

                def keep(_: nn.Module, arguments: tuple[Any, ...], name: str = name) -> None:
                    if self.network.training:
                        self.votes.pop(name, None)
                        self.votes[name] = arguments[1]  # in the order in which the layers run

                module.register_forward_pre_hook(keep)

    def __call__(self, batch: Batch) -> None:
        """Train on a batch; raise :class:`NonFiniteError` before a bad step changes anything."""
        if self.count == 0:
            self._compile_ahead(batch)
        output, loss = self._loss(self.forward, batch)
        # a captured step must not add to earlier gradients, whose memory is released
        for parameter in self.network_parameters:
            parameter.grad = None
        climbs = self.ascent is not None and self.count % self.recipe.coefficient_every == 0
        slopes = self._climb(batch) if climbs else []
        loss.backward()
        for parameter, slope in slopes:
            parameter.grad = self.process.sum(slope)
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        # a score of -inf can leave loss and gradient finite
        total = norm + loss.detach() + output.scores.detach().sum()
        self.stops.logical_or_(total - total != 0)
        if self.skips:
            self.stopped.add_(self.stops)
        elif self.stops:
            raise NonFiniteError
        if self.recipe.clip:
            scale = (self.recipe.clip / (norm + 1e-6)).clamp(max=1.0)
            torch._foreach_mul_(gradients, scale)
        if self.skips and not self.fused:  # after clipping, which spreads a NaN norm to all
            self._cancel_bad_step(gradients)
        self.optimizer.step()
        if climbs and self.ascent is not None:
            self.ascent.step()
        self._count(output.scores.detach(), batch, loss.detach())

    def _loss(self, forward: Callable[..., Output], batch: Batch) -> tuple[Output, Tensor]:
        """Return the output for a batch, and its loss."""
        images = batch.images.contiguous(memory_format=self.format)
        with autocast(self.process.device, self.recipe.precision):
            output = forward(images, batch.labels if self.decodes else None)
        return output, total_loss(self.recipe, output, batch, self.taken, steps=self.steps)

    def _compile_ahead(self, batch: Batch) -> None:
        """Compile the kernels of a step that is not captured, whose capture would compile them."""
        if self.process.world == 1:
            forward = self.forward
        elif any(isinstance(module, nn.SyncBatchNorm) for module in self.network.modules()):
            return  # it talks to the other processes, and one of them may fail
        else:
            forward = self.network
        compile_gradient(self.network, lambda: self._loss(forward, batch)[1], self.process.device)

    def _cancel_bad_step(self, gradients: list[Tensor]) -> None:
        """Keep an optimizer that cannot skip steps from changing weights after a bad step."""
        for gradient in gradients:
            gradient.copy_(torch.where(self.stops > 0, 0, gradient))
        for group in self.optimizer.param_groups:
            group["lr"].mul_(1 - self.stops)

    def _climb(self, batch: Batch) -> list[tuple[nn.Parameter, Tensor]]:
        """Return the parameters that climb the objective of the class capsules, and its gradients.

        Objective and loss are taken at the same weights and the same votes; both steps follow. The
        last routing that has an objective routes to the classes. The coefficients of the layers
        below reach it through their poses, by the chain rule.
        """
        targets = targets_of(batch, self.network.n_classes)
        votes, self.votes = self.votes, {}
        if not votes:
            return []
        modules = {name: cast(Routing, self.network.get_submodule(name)) for name in votes}
        *below, last = votes
        share, strength = 1 / self.process.world, self.recipe.coefficient_penalty
        inputs = votes[last] if below else votes[last].detach()
        objective = modules[last].objective(inputs, targets, share=share, strength=strength)
        assert objective is not None
        parameters = [
            module.get_parameter(key)
            for module in modules.values()
            for key in module.objective_parameters
        ]
        gradients = torch.autograd.grad(objective, parameters, retain_graph=bool(below))
        return list(zip(parameters, gradients, strict=True))

    def _count(self, scores: Tensor, batch: Batch, loss: Tensor) -> None:
        targets, count = targets_of(batch, scores.shape[1]), len(scores)
        sums = sums_of(scores.float(), targets, self.recipe.measure)
        self.meters[:-1].add_(torch.cat(((loss * count)[None], sums)))
        self.meters[-1].add_(count)
        self.taken.add_(1)
        self.count += 1

    @property
    def bad_step(self) -> int:
        """The number of the first step that was not finite, or -1; waits for the device."""
        return int(self.taken - self.stopped) if self.stops else -1

    @property
    def capturable(self) -> bool:
        """Return whether the step never waits for the host, so that a graph can capture it."""
        alone = self.process.world == 1 and self.recipe.coefficient_every == 1
        return self.skips and alone

    def check(self) -> None:
        """Wait for the device and raise :class:`NonFiniteError` if a step was not finite."""
        if self.stops:
            raise NonFiniteError


class GraphedStep:
    """A training step as a CUDA graph: captured at the first batch, replayed for every batch.

    The capture runs the step a few times, and then restores everything that the step changes.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self.graph: torch.cuda.CUDAGraph | None = None
        self.batch: Batch | None = None

    def __call__(self, batch: Batch) -> None:
        """Train on a batch of the same size as the first one."""
        if self.graph is None or self.batch is None:
            self._capture(batch)
        assert self.graph is not None
        assert self.batch is not None
        self.batch.images.copy_(batch.images)
        self.batch.labels.copy_(batch.labels)
        if self.batch.targets is not None and batch.targets is not None:
            self.batch.targets.copy_(batch.targets)
        self.graph.replay()

    def _capture(self, batch: Batch) -> None:
        static = Batch(
            batch.images.clone(memory_format=torch.preserve_format),
            batch.labels.clone(),
            batch.indices,
            None if batch.targets is None else batch.targets.clone(),
        )
        step = self.step
        optimizers = [o for o in (step.optimizer, step.ascent) if o is not None]
        counters = [step.meters, step.taken, step.stopped, step.stops]
        # a step on placeholders may be a bad one, which sets rates to zero
        rates = [group["lr"] for o in optimizers for group in o.param_groups]
        counters += [rate for rate in rates if isinstance(rate, Tensor)]
        with unchanged([step.network], optimizers, counters):
            self.graph, _ = record(lambda: step(static), before=step.network.zero_grad)
        self.batch = static


def make_step(
    recipe: Recipe,
    network: Network,
    process: Process,
    forward: Callable[..., Output] | None = None,
    *,
    steps: int = 1,
) -> Step | GraphedStep:
    """Return the training step of a recipe: call it with a batch to update the network once.

    On a GPU the step is replayed as a CUDA graph where the optimizer and the recipe allow it.

    Args:
        recipe: the recipe to train.
        network: the network to train, on the process's device.
        process: this process.
        forward: the network after compilation or wrapping; by default the network itself.
        steps: length of the run.
    """
    optimizer, ascent = make_optimizers(recipe, network, process.device)
    forward = network if forward is None else forward
    step = Step(recipe, network, forward, optimizer, ascent, process, max(1, steps))
    return GraphedStep(step) if step.capturable else step

"""A training step of any loop as one CUDA graph."""

from collections.abc import Callable, Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchcaps.captured import graphs
from torchcaps.errors import UsageError


@final
class CapturedStep:
    """A training step that runs as one CUDA graph where that is possible.

        step = tc.CapturedStep(network, loss, optimizer, autocast=torch.bfloat16, clip=1.0)
        for images, labels in loader:
            running += step(images, labels)     # forward, backward, clipping, update
            scheduler.step()

    The first full batch is captured, and batches of its shape are replayed. A batch of another
    shape, such as the last one of an epoch, takes the plain step. So does everything on a CPU. The
    capture itself trains nothing: it restores weights, statistics and the optimizer.

    On a GPU the constructor moves learning rates to the device, where schedulers change them in
    place. A learning rate that your loop assigns is copied before the next step.

    Args:
        network: the network, perhaps compiled, in the mode that the caller chose. Apart from the
            optimizer, a step must change nothing but its parameters and buffers.
        loss: function of the network's output and the targets that returns a scalar.
        optimizer: an optimizer of `torch.optim` that has the option ``fused`` or ``capturable``.
        autocast: precision of the forward pass; None keeps that of the weights.
        clip: largest norm of the gradient; 0 does not clip.
        pass_targets: also give the targets to the network, as decoders of a class need.
        capture: False takes the plain step everywhere.
    """

    def __init__(
        self,
        network: nn.Module,
        loss: Callable[..., Tensor],
        optimizer: Optimizer,
        *,
        autocast: torch.dtype | None = None,
        clip: float = 0.0,
        pass_targets: bool = False,
        capture: bool = True,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise UsageError(f"a step needs a torch optimizer, not a {type(optimizer).__name__}")
        if clip < 0:
            raise UsageError(f"clip must be 0 or above, not {clip}")
        self.network = network
        self.loss = loss
        self.optimizer = optimizer
        self.autocast = autocast
        self.clip = clip
        self.pass_targets = pass_targets
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if not self.parameters:
            raise UsageError("the optimizer of a step has no parameters")
        self.device = self.parameters[0].device
        self.captures = capture and self.device.type == "cuda"
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Tensor, ...] = ()
        self._loss = torch.zeros((), device=self.device)
        self._rates: list[Tensor] = []
        if self.captures:
            self._prepare_optimizer()

    def __call__(self, images: Tensor, *targets: Tensor) -> Tensor:
        """Train on a batch and return its loss, without gradient."""
        if not self.captures:
            return self._plain(images, *targets)
        self._copy_rates()
        batch = tuple(tensor.to(self.device, non_blocking=True) for tensor in (images, *targets))
        if self._graph is None:
            self._capture(batch)
        if not _same_shapes(batch, self._inputs):
            return self._plain(*batch)
        for static, tensor in zip(self._inputs, batch, strict=True):
            static.copy_(tensor)
        assert self._graph is not None
        self._graph.replay()
        return self._loss.clone()

    def _plain(self, images: Tensor, *targets: Tensor) -> Tensor:
        """Take the step kernel by kernel."""
        enabled = self.autocast is not None
        with torch.autocast(self.device.type, dtype=self.autocast, enabled=enabled):
            output = self.network(images, *(targets if self.pass_targets else ()))
            loss = self.loss(output, *targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimizer.step()
        return loss.detach()

    def _capture(self, batch: tuple[Tensor, ...]) -> None:
        self._inputs = tuple(tensor.clone() for tensor in batch)

        def run() -> None:
            self._loss.copy_(self._plain(*self._inputs))

        with graphs.unchanged([self.network], [self.optimizer], [self._loss]):
            self._graph, _ = graphs.record(run, before=self.optimizer.zero_grad)

    def _prepare_optimizer(self) -> None:
        """Make the optimizer's step run on the device alone."""
        for group in self.optimizer.param_groups:
            if not {"fused", "capturable"} & group.keys():
                raise UsageError(
                    f"{type(self.optimizer).__name__} cannot be captured as a CUDA graph: take an "
                    "optimizer with the option fused or capturable, or capture=False"
                )
            if "fused" in group:
                group["fused"], group["foreach"] = True, False
            if "capturable" in group:
                group["capturable"] = True
            self._rates.append(torch.as_tensor(group["lr"], device=self.device).float().clone())
            group["lr"] = self._rates[-1]
        for state in self.optimizer.state.values():
            if isinstance(state.get("step"), Tensor):
                state["step"] = state["step"].to(self.device)

    def _copy_rates(self) -> None:
        """Copy learning rates that were assigned as numbers to where the graph reads them."""
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            if group["lr"] is not rate:
                rate.fill_(float(group["lr"]))
                group["lr"] = rate


def _same_shapes(batch: Sequence[Tensor], static: Sequence[Tensor]) -> bool:
    return [(t.shape, t.dtype) for t in batch] == [(t.shape, t.dtype) for t in static]

"""A forward pass as one CUDA graph per shape of its images."""

from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from torchcaps.captured import graphs
from torchcaps.errors import UsageError


@final
class CapturedNetwork:
    """The forward pass of a network in evaluation, as one CUDA graph per shape of the images.

        fast = tc.CapturedNetwork(network.eval(), autocast=torch.bfloat16)
        scores = fast(images).scores

    On a CPU it calls the network. The result is a copy, which later calls do not overwrite.

    Args:
        network: the network in evaluation mode; changed weights count at the next call.
        autocast: precision of the forward pass; None keeps that of the weights.
        most_shapes: shapes that get a graph; further ones run kernel by kernel.
    """

    def __init__(
        self, network: nn.Module, *, autocast: torch.dtype | None = None, most_shapes: int = 8
    ) -> None:
        if not isinstance(network, nn.Module):
            raise UsageError(f"CapturedNetwork takes a network, not {type(network).__name__}")
        if network.training:
            raise UsageError("a captured network is for evaluation: call its eval() first")
        self.network = network
        self.autocast = autocast
        self.most_shapes = most_shapes
        self.device = next((p.device for p in network.parameters()), torch.device("cpu"))
        self._graphs: dict[tuple[Any, ...], tuple[torch.cuda.CUDAGraph, Tensor, Any]] = {}

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Any:
        """Return what the network returns."""
        if self.device.type != "cuda":
            return self._plain(images)
        images = images.to(self.device, non_blocking=True)
        key = (images.shape, images.dtype)
        if key not in self._graphs:
            if len(self._graphs) >= self.most_shapes:
                return self._plain(images)
            static = images.clone()
            graph, output = graphs.record(lambda: self._plain(static))
            self._graphs[key] = (graph, static, output)
        graph, static, output = self._graphs[key]
        static.copy_(images)
        graph.replay()
        return pytree.tree_map_only(Tensor, Tensor.clone, output)

    def _plain(self, images: Tensor) -> Any:
        enabled = self.autocast is not None
        with torch.autocast(self.device.type, dtype=self.autocast, enabled=enabled):
            return self.network(images)

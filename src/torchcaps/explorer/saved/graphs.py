"""The answers to the page as ONNX graphs."""

from copy import deepcopy
from typing import final

from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.explorer.explored import Explored, is_shown, only_children
from torchcaps.export.packed import keep_packed
from torchcaps.export.parity import compare, find_images
from torchcaps.export.programs import Inputs, run_onnx, to_onnx
from torchcaps.export.traced import Drawing, Traced
from torchcaps.layers import CapsuleLayer

N_CHECKED = 3
"""Images on which a graph is compared with PyTorch."""


@final
class Looking(nn.Module):
    """What the page shows of an image, without the drawing, which the decoder's graph makes.

    Args:
        traced: the network.
        n_children: number of primary capsules.
    """

    def __init__(self, traced: Traced, n_children: int) -> None:
        super().__init__()
        self.traced = traced
        self.n_children = n_children

    def inputs(self, count: int) -> Inputs:
        """Return an example of each input by name."""
        images = self.traced.example(count)
        return {"images": images, "keep": images.new_ones(count, self.n_children)}

    def forward(self, images: Tensor, keep: Tensor) -> dict[str, Tensor]:
        """Return the outputs for images in 0 to 1.

        Args:
            images: ``[b c h w]``.
            keep: ``[b i]``, 0 for primary capsules that are switched off and 1 for the others.
        """
        layers = (module for module in self.traced.modules() if isinstance(module, CapsuleLayer))
        with only_children(next(layers), keep):
            outputs = self.traced(images)
        return {k: v for k, v in outputs.items() if is_shown(k) and k != "drawing"}


def look_graph(explored: Explored) -> bytes:
    """Return the graph of `Explored.look`, checked against PyTorch."""
    looking = Looking(deepcopy(explored.traced).requires_grad_(False), explored.n_children)
    images, _ = find_images(None, explored.input_shape, N_CHECKED)
    keep = images.new_ones(N_CHECKED, explored.n_children)
    keep[0, ::8] = 0
    return _checked(looking, looking.inputs(2), {"images": images, "keep": keep})


def draw_graph(explored: Explored) -> bytes:
    """Return the graph of `Explored.draw`, checked against PyTorch."""
    drawing = deepcopy(Drawing(explored.network)).requires_grad_(False)
    poses, classes = drawing.example(N_CHECKED)
    sample = {"poses": poses.normal_(), "classes": classes}
    return _checked(drawing, drawing.inputs(2), sample)


def _checked(graph: nn.Module, example: Inputs, sample: Inputs) -> bytes:
    result = graph(*sample.values())
    outputs = list(result) if isinstance(result, dict) else ["drawing"]
    packed = deepcopy(graph)
    keep_packed(packed)
    content = to_onnx(packed, example, outputs, {})
    try:
        compare(graph, run_onnx(content), [sample], outputs, exact=True)
    except TorchcapsError as error:
        raise TorchcapsError(f"the page cannot be saved: {error}") from None
    return content

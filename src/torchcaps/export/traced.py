"""Networks as modules of plain tensors that `torch.export` and ONNX can take whole.

Their images are pixels ``[b c h w]`` from 0 to 1, before the network's preprocessing, which is part
of the module. Axes beside the usual ones: n class, t routing iteration, p position of a sliding
layer (1 for the others), s slot, one of the children that a position sees.
"""

from typing import Any, final

import torch
from torch import Tensor, nn

from torchcaps.analysis.reconstruction import decoder_of
from torchcaps.analysis.trace import LayerTrace, trace_output
from torchcaps.capsules import Output
from torchcaps.functional import lengths
from torchcaps.models import Network


class Graph(nn.Module):
    """A network that takes pixels and returns named tensors, the scores first.

    Args:
        network: a network that knows its preprocessing.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        preprocessing = network.known_preprocessing()
        self.network = network
        self.steps = preprocessing.steps
        self.input_shape = (preprocessing.channels, *preprocessing.size)
        self.eval()

    def example(self, count: int = 1) -> Tensor:
        """Return images of the right shape: zeros."""
        return next(self.network.parameters()).new_zeros(count, *self.input_shape)

    def inputs(self, count: int) -> dict[str, Tensor]:
        """Return an example of each input by name."""
        return {"images": self.example(count)}

    def prepared(self, images: Tensor) -> Tensor:
        """Return the images as the network was trained to see them."""
        for step in self.steps:
            images = step(images)
        return images

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Return ``scores`` ``[b n]`` and, with class capsules, ``poses`` ``[b n e]``."""
        return _class_outputs(self.network(self.prepared(images)))

    def output_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the outputs in order, for a batch of one image."""
        with torch.no_grad():
            outputs = self(self.example())
        return {name: tuple(tensor.shape) for name, tensor in outputs.items()}


@final
class Traced(Graph):
    """A network with everything that its capsule layers did, as named tensors.

    The outputs are, in this order:

    - ``scores`` ``[b n]``, ``poses`` ``[b n e]`` and ``lengths`` ``[b n]`` of the class capsules;
    - for every capsule layer, by the name of its module:

      - ``LAYER.couplings`` ``[b t p i j]``: what child i gave to parent j in every iteration,
      - ``LAYER.poses`` ``[b t p j e]`` and ``LAYER.activations`` ``[b t p j]`` of the parents,
      - ``LAYER.strength`` ``[b p s j]``: how much slot s gave to parent j in the last iteration,
      - ``LAYER.present_below`` ``[b m]``: activations or lengths of all children;

    - ``drawing`` ``[b c h w]``, or ``[b k c h w]`` for k objects, where there is a decoder.

    Positions p count rows of the parents' grid first. A child's number counts rows, columns and
    types of the grid below; :meth:`describe` says which child is in which slot.

    Args:
        network: a network with capsule layers that knows its preprocessing.
        iterations: how many routing iterations to show; None shows those it was built with.
    """

    def __init__(self, network: Network, *, iterations: int | None = None) -> None:
        super().__init__(network)
        self.iterations = iterations

    def traced(self, images: Tensor) -> tuple[Output, tuple[LayerTrace, ...]]:
        """Return the output and the layers' traces for images in 0 to 1."""
        return trace_output(self.network, self.prepared(images), iterations=self.iterations)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Return the named outputs for images ``[b c h w]`` in 0 to 1."""
        output, layers = self.traced(images)
        outputs = _class_outputs(output)
        if "poses" in outputs:
            outputs["lengths"] = lengths(outputs["poses"])
        for layer in layers:
            outputs[f"{layer.name}.couplings"] = torch.stack(layer.couplings, dim=1)
            outputs[f"{layer.name}.poses"] = torch.stack(layer.poses, dim=1)
            outputs[f"{layer.name}.activations"] = torch.stack(layer.activations, dim=1)
            outputs[f"{layer.name}.strength"] = layer.strength
            outputs[f"{layer.name}.present_below"] = layer.present_below
        if output.reconstruction is not None:
            outputs["drawing"] = output.reconstruction
        return outputs

    def describe(self) -> dict[str, Any]:
        """Return input, outputs and layers as `json` can store them.

        A layer has its ``name``, its ``routing`` and ``competes_over``, the axis its couplings
        compete over. ``below`` and ``above`` are its grids (rows, columns, types). ``child``
        ``[p s]`` is the child in each slot, -1 for padding.
        """
        with torch.no_grad():
            _, layers = self.traced(self.example())
        return {
            "input": list(self.input_shape),
            "outputs": {name: list(shape[1:]) for name, shape in self.output_shapes().items()},
            "layers": [
                {
                    "name": layer.name,
                    "routing": layer.routing,
                    "competes_over": layer.competes_over,
                    "below": list(layer.below),
                    "above": list(layer.above),
                    "child": layer.child.tolist(),
                }
                for layer in layers
            ],
        }


@final
class Drawing(nn.Module):
    """The decoder of a network: class poses and a class, turned into an image.

    Args:
        network: a network with a decoder.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.decoder = decoder_of(network)
        self.eval()

    def example(self, count: int = 1) -> tuple[Tensor, Tensor]:
        """Return poses and classes of the right shapes: zeros."""
        poses = next(self.decoder.parameters()).new_zeros(
            count, self.decoder.n_classes, self.decoder.d
        )
        return poses, torch.zeros(count, dtype=torch.long, device=poses.device)

    def inputs(self, count: int) -> dict[str, Tensor]:
        """Return an example of each input by name."""
        return dict(zip(("poses", "classes"), self.example(count), strict=True))

    def output_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return name and shape of the output, for one drawing."""
        return {"drawing": (1, *self.decoder.image_shape)}

    def forward(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Return images ``[b c h w]`` of the capsules of ``classes`` ``[b]``.

        Args:
            poses: poses ``[b n e]`` of all class capsules.
            classes: the class to draw for each image.
        """
        return self.decoder.decode(poses, classes)


def _class_outputs(output: Output) -> dict[str, Tensor]:
    outputs = {"scores": output.scores}
    if output.capsules is not None:
        outputs["poses"] = output.capsules.poses
    return outputs

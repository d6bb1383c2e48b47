"""One image on its way through a capsule network, from pixels to scores."""

from dataclasses import dataclass

from torch import Tensor, stack

from torchcaps.analysis.outputs import evaluating
from torchcaps.analysis.trace import trace
from torchcaps.models import Network


@dataclass(frozen=True, eq=False)
class Walk:
    """The stages of one image.

    Attributes:
        image: ``[c h w]``.
        primary: ``[h' w']``, presence of the primary capsules, summed over types.
        child: row, column and type of the child with the largest part in the winning class.
        couplings: ``[t n]``, its couplings to the classes after each iteration.
        scores: ``[n]``.
        prediction: the winning class.
    """

    image: Tensor
    primary: Tensor
    child: tuple[int, int, int]
    couplings: Tensor
    scores: Tensor
    prediction: int


def walk(network: Network, image: Tensor) -> Walk:
    """Follow one image ``[1 c h w]``."""
    if len(image) != 1:
        raise ValueError(f"a walk is of one image [1 c h w], not {list(image.shape)}")
    layers = trace(network, image)
    with evaluating(network):
        scores: Tensor = network(image).scores[0]
    prediction = int(scores.argmax())
    first, last = layers[0], layers[-1]
    rows, columns, types = last.below
    strength = last.strength[0, 0, :, prediction]
    slot = int(strength.argmax())
    child = int(last.child[0, slot])
    # the slots of a convolutional transform share the coupling of their type
    row = slot * last.couplings[-1].shape[2] // len(strength)
    position = child // types
    return Walk(
        image=image[0],
        primary=first.present_below[0].reshape(first.below).sum(dim=-1),
        child=(position // columns if rows > 1 else 0, position % columns, child % types),
        couplings=stack([one[0, 0, row] for one in last.couplings]),
        scores=scores,
        prediction=prediction,
    )

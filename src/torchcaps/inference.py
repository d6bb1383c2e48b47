"""Trained networks in use: loaded from a run or a file, and asked for classes."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from torchcaps.capsules import Output
from torchcaps.errors import MissingFileError, UsageError
from torchcaps.models import Network, predict
from torchcaps.preprocessing.images import Image

BATCH_SIZE = 100


class Prediction(NamedTuple):
    """The classes predicted for one image, best first.

    ``classes`` are names, or numbers where the network has no ``class_names``. ``labels`` are the
    numbers. ``scores`` are the network's own: lengths, activations or logits.
    """

    classes: tuple[str | int, ...]
    scores: tuple[float, ...]
    labels: tuple[int, ...]


def load(path: str | Path, *, device: str | torch.device = "cpu") -> Network:
    """Load a trained network from a run folder or a weight file, in evaluation mode.

    A file names its architecture and holds no code; a network of your own must be registered first,
    see :func:`torchcaps.register_network`. The file is checked against the network that it names
    before anything is allocated. Weights that were stored in fewer bytes are converted to float32.
    """
    from torchcaps.train.evaluation.trained import load_trained

    if not isinstance(path, str | Path):
        raise UsageError(f"load takes the path of a file or a run folder, not {path!r}")
    if not Path(path).exists():
        raise MissingFileError(f"there is no file or run folder {path}")
    return load_trained(Path(path), device=device)


def classify(
    network: Network,
    images: "Image | Sequence[Image]",
    *,
    top: int | None = None,
    threshold: float | None = None,
) -> list[Prediction]:
    """Predict the classes of images, which the network preprocesses itself.

        for prediction in tc.classify(network, ["a.png", "b.png"]):
            print(prediction.classes[0], prediction.scores[0])

    Args:
        network: a network that knows its preprocessing; it is evaluated without gradients.
        images: see :meth:`torchcaps.Network.preprocess`.
        top: number of classes of each image; None for as many as the network was built to find:
            1, or 2 for MultiMNIST.
        threshold: instead of ``top``, every class whose sigmoid of the score exceeds this
            (DiverseMultiMNIST: 0.5).
    """
    if not isinstance(network, Network):
        raise UsageError(f"classify takes a torchcaps.Network, not {type(network).__name__}")
    if network.predicts == "numbers":
        raise UsageError(
            f"{network.name or type(network).__name__} predicts numbers and no classes: they are "
            "the scores of what it returns, network(network.preprocess(images)).scores"
        )
    scores = compute_scores(network, network.preprocess(images))
    if threshold is None:
        chosen = predict(scores, top=network.n_objects if top is None else top)
    else:
        chosen = predict(scores, top=top, threshold=threshold)
    return [_prediction(row, chosen[number], network) for number, row in enumerate(scores)]


def compute_scores(network: Network, batch: Tensor) -> Tensor:
    """Return the scores of a batch in evaluation mode, and restore the network's mode."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        with torch.no_grad():
            parts = [network(part).scores.float().cpu() for part in batch.split(BATCH_SIZE)]
    finally:
        for module, training in modes:
            module.training = training
    return torch.cat(parts)


def _prediction(scores: Tensor, chosen: Tensor, network: Network) -> Prediction:
    order = scores.argsort(descending=True, stable=True).tolist()
    labels = tuple(label for label in order if chosen[label])
    names = network.class_names
    classes = labels if names is None else tuple(names[label] for label in labels)
    return Prediction(classes, tuple(float(scores[label]) for label in labels), labels)


@final
class Scores(nn.Module):
    """A network that returns its scores ``[b n]`` as one tensor, for other libraries.

    Use it with libraries that expect a tensor, such as skorch, captum and torchmetrics. Images are
    preprocessed before, as for the network itself.

    Args:
        network: a network, or any module that returns an :class:`Output`.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        if not isinstance(network, nn.Module):
            raise UsageError(f"Scores takes a network, not {type(network).__name__}")
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores of images."""
        output = self.network(images)
        if not isinstance(output, Output):
            raise UsageError(
                f"Scores takes a network that returns an Output, not {type(output).__name__}"
            )
        return output.scores

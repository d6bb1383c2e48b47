"""The base class of networks, prediction for one or several classes, ensembles."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, final

import torch
from torch import Tensor, nn

from torchcaps.capsules import Output
from torchcaps.errors import InputError, MissingFileError, UsageError
from torchcaps.layers import Decoder
from torchcaps.preprocessing import Preprocessing
from torchcaps.preprocessing.description import MAX_SIDE
from torchcaps.preprocessing.images import Image
from torchcaps.routing.base import Routing, check_iterations

ImageShape = tuple[int, int, int]

MAX_CLASSES = 100_000


class Network(nn.Module, ABC):
    """A network from images to an :class:`Output`.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: number of classes.
    """

    name: str | None = None
    """The name given to :func:`torchcaps.build`; None for a network built by hand."""

    overrides: dict[str, Any]
    """The changes given to :func:`torchcaps.build`."""

    preprocessing: Preprocessing | None = None
    """The preprocessing of the training images, or None if unknown. Weight files record it."""

    class_names: tuple[str, ...] | None = None
    """Name of each class by number; None if they are unknown. Weight files record them."""

    reinitialized: tuple[str, ...] = ()
    """Tensors that pretrained weights of other classes or images did not fit."""

    trained: Mapping[str, str | int | float] = MappingProxyType({})
    """Facts of the training run behind the weights, such as recipe, seed, test accuracy and commit;
    empty for weights without a run."""

    n_objects: int = 1
    """Number of objects in one image."""

    predicts: ClassVar[Literal["classes", "numbers"]] = "classes"
    """Meaning of the scores. Of numbers, ``n_classes`` counts them and ``class_names`` names
    them."""

    def __init__(self, image_shape: ImageShape, n_classes: int) -> None:
        super().__init__()
        sides = image_shape if isinstance(image_shape, tuple) and len(image_shape) == 3 else (0,)
        if not all(isinstance(n, int) and n > 0 for n in sides):
            raise InputError(f"image_shape must be (channels, height, width), not {image_shape!r}")
        if not isinstance(n_classes, int) or n_classes < 1:
            raise ValueError(f"n_classes must be a whole number of at least 1, not {n_classes!r}")
        if max(sides) > MAX_SIDE or n_classes > MAX_CLASSES:
            raise InputError(
                f"a network takes at most {MAX_CLASSES:,} classes and images of at most "
                f"{MAX_SIDE:,} in each axis, not {n_classes:,} and {list(sides)}"
            )
        self.image_shape: ImageShape = (image_shape[0], image_shape[1], image_shape[2])
        self.n_classes = n_classes
        self.overrides = {}

    @abstractmethod
    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Classify images ``[b c h w]``.

        Args:
            images: images of the shape that the network was built for.
            targets: class numbers ``[b]``, or ``[b k]`` for k objects in one image. In training, a
                decoder reconstructs from the capsules of these classes; without targets it is not
                run. Evaluation ignores them.
            couplings: also return the couplings of every capsule layer.
        """

    def preprocess(self, images: "Image | Sequence[Image]") -> Tensor:
        """Return images as the float batch ``[b c h w]`` that this network was trained to see.

        Images of another size are resized until they cover the network's, and their center is cut
        out. Gray images become color and the other way round.

        Args:
            images: the path of a file, a Pillow image, a tensor or an array, or a list of these.
                Pixels are uint8, or floats between 0 and 1 that are not normalized. A tensor or an
                array is a batch ``[b c h w]`` or ``[b h w c]``, or one image ``[c h w]``,
                ``[h w c]`` or ``[h w]``.
        """
        weight = next(self.parameters())
        return self.known_preprocessing()(images).to(weight.device, weight.dtype)

    def known_preprocessing(self) -> Preprocessing:
        """Return the preprocessing; refuse a network whose preprocessing is unknown."""
        if self.preprocessing is None:
            raise UsageError(
                f"it is unknown how images of this {self.name or type(self).__name__} must be "
                "preprocessed: set its attribute preprocessing to a torchcaps.Preprocessing, or "
                "call it with images prepared as in training"
            )
        return self.preprocessing

    def features(self, images: Tensor) -> Tensor:
        """Return the backbone's features ``[b c h w]`` of preprocessed images."""
        module = self._modules.get("features")
        if module is not None:  # a subclass may have a module of this name
            features: Tensor = module(images)
            return features
        backbone = getattr(self, "backbone", None)
        if not isinstance(backbone, nn.Module):
            raise UsageError(f"{self.name or type(self).__name__} has no backbone with features")
        features = backbone(self.checked(images))
        return features

    def checked(self, images: Tensor) -> Tensor:
        """Return the images if they are what this network was built for."""
        if not isinstance(images, Tensor) or not images.is_floating_point():
            kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
            raise ValueError(f"images must be a tensor of floats between 0 and 1, not {kind}")
        if images.dtype == torch.float64 != next(self.parameters()).dtype:
            raise ValueError("images are float64 and the weights are not: use images.float()")
        if images.dim() != 4 or images.shape[1:] != self.image_shape:
            expected = " ".join(str(n) for n in self.image_shape)
            raise ValueError(
                f"{self.name or type(self).__name__} takes images [b {expected}], "
                f"not {list(images.shape)}"
            )
        return images

    def reconstruct(
        self, decoder: Decoder | None, poses: Tensor, scores: Tensor, targets: Tensor | None, k: int
    ) -> Tensor | None:
        """Decode the true classes in training, the k highest scores in evaluation."""
        if decoder is None or (self.training and targets is None):
            return None
        if self.training and targets is not None:
            expected = (len(poses),) if k == 1 else (len(poses), k)
            if targets.shape != expected:
                raise ValueError(
                    f"targets {list(targets.shape)} must be class numbers {list(expected)}, "
                    f"{k} for each image"
                )
            chosen = targets
        else:
            chosen = scores.topk(k, dim=-1).indices if k > 1 else scores.argmax(dim=-1)
        if chosen.dim() == 1:
            return decoder.decode(poses, chosen)
        return torch.stack([decoder.decode(poses, one) for one in chosen.unbind(dim=1)], dim=1)

    def set_iterations(self, iterations: int) -> None:
        """Change the number of routing iterations; no parameter changes."""
        check_iterations(iterations)
        routings = [m for m in self.modules() if isinstance(m, Routing) and m.iterations]
        if not routings:
            raise UsageError(f"{self.name or type(self).__name__} does not iterate")
        for routing in routings:
            routing.iterations = iterations
        self.overrides["iterations"] = iterations

    @property
    def n_parameters(self) -> int:
        """The number of learned parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    def save_pretrained(self, directory: str | Path, **options: Any) -> None:
        """Write a folder in the layout of the Hugging Face Hub; needs ``torchcaps[hub]``."""
        from torchcaps.models.weights.hub import HubNetwork

        HubNetwork(self).save_pretrained(directory, **options)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload to the Hugging Face Hub; needs ``torchcaps[hub]``."""
        from torchcaps.models.weights.hub import HubNetwork

        return HubNetwork(self).push_to_hub(repo_id, **options)

    @classmethod
    def from_pretrained(cls, name_or_folder: str | Path, **options: Any) -> Self:
        """Load what :meth:`save_pretrained` wrote, from a folder or from the Hub.

        The network is in evaluation mode. Options are those of huggingface_hub's mixin.
        """
        from torchcaps.models.weights.hub import HubNetwork

        if str(name_or_folder).startswith((".", "/")) and not Path(name_or_folder).is_dir():
            raise MissingFileError(f"there is no folder {name_or_folder}")
        network = HubNetwork.from_pretrained(name_or_folder, **options).network
        if not isinstance(network, cls):
            raise ValueError(
                f"{name_or_folder} holds a {type(network).__name__}, not a {cls.__name__}"
            )
        return network


@final
class Classifier(Network):
    """A network without capsules, around any module that returns scores."""

    def __init__(self, image_shape: ImageShape, n_classes: int, layers: nn.Module) -> None:
        super().__init__(image_shape, n_classes)
        self.layers = layers

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Return the scores of images."""
        return Output(self.layers(self.checked(images)))


@final
class Ensemble(nn.Module):
    """Several networks as one that sums their scores (Sabour 2017, section 7).

    Predicted numbers are averaged.
    """

    def __init__(self, networks: Iterable[Network]) -> None:
        super().__init__()
        members = list(networks)
        if not members:
            raise ValueError("an ensemble needs at least one network")
        for network in members:
            if not isinstance(network, Network):
                raise UsageError(f"an ensemble takes networks, not {type(network).__name__}")
        if len({network.n_classes for network in members}) > 1:
            raise InputError("the networks of an ensemble must have the same classes")
        if len({network.image_shape for network in members}) > 1:
            raise InputError("the networks of an ensemble must take images of the same shape")
        if len({network.predicts for network in members}) > 1:
            raise InputError("an ensemble predicts either classes or numbers")
        self.predicts = members[0].predicts
        self.networks = nn.ModuleList(members)

    def forward(self, images: Tensor) -> Output:
        """Return the summed scores, or the mean numbers, of images."""
        scores = torch.stack([network(images).scores for network in self.networks])
        return Output(scores.mean(dim=0) if self.predicts == "numbers" else scores.sum(dim=0))


def predict(
    scores: Tensor | Output, *, top: int | None = None, threshold: float | None = None
) -> Tensor:
    """Predict classes from scores ``[b n]``.

    Args:
        scores: scores of a network, or its output.
        top: None returns the best class ``[b]``. A number k returns zeros and ones ``[b n]`` with
            the k best classes (MultiMNIST: 2).
        threshold: instead of ``top``, return ones where the sigmoid of the score exceeds this
            (DiverseMultiMNIST: 0.5).

    Example:
        >>> tc.predict(torch.tensor([[0.1, 0.7, 0.4]]))
        tensor([1])
        >>> tc.predict(torch.tensor([[0.1, 0.7, 0.4]]), top=2)
        tensor([[0, 1, 1]])
    """
    if isinstance(scores, Output):
        scores = scores.scores
    if not isinstance(scores, Tensor):
        raise UsageError(f"scores must be a tensor or an Output, not {type(scores).__name__}")
    if scores.dim() != 2 or not scores.shape[1]:
        raise UsageError(f"scores must be [batch classes], not {list(scores.shape)}")
    if top is not None and threshold is not None:
        raise UsageError("give top or threshold, not both")
    if threshold is not None and not (isinstance(threshold, float | int) and 0 < threshold < 1):
        raise UsageError(f"threshold must be between 0 and 1, not {threshold!r}")
    if top is not None and (type(top) is not int or not 1 <= top <= scores.shape[1]):
        raise UsageError(f"top must be between 1 and {scores.shape[1]} classes, not {top!r}")
    if not torch.compiler.is_compiling() and scores.device.type == "cpu" and scores.isnan().any():
        raise InputError("scores are NaN: look for NaN in the images and in the weights")
    return choose_classes(scores, top=top, threshold=threshold)


def choose_classes(
    scores: Tensor, *, top: int | None = None, threshold: float | None = None
) -> Tensor:
    """Choose classes as :func:`predict` does, whatever the arguments and the scores are."""
    if threshold is not None:
        return (scores.sigmoid() > threshold).long()
    if top is None:
        return scores.argmax(dim=-1)
    chosen = scores.topk(top, dim=-1).indices
    return torch.zeros_like(scores, dtype=torch.long).scatter(1, chosen, 1)

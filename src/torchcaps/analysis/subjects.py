"""What is looked into: a trained network with the images it is tested on."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from torchcaps.capsules import Output
from torchcaps.data import (
    CATALOGUE,
    Batch,
    Batches,
    CentreCrop,
    Channels,
    Draws,
    Generated,
    ImageSet,
    Mono,
    Transform,
    load,
    stream_key,
)
from torchcaps.models import Network
from torchcaps.models import load as load_network

__all__ = ["Prepared", "Subject", "open_subject"]

WEIGHTS = "weights.safetensors"


@final
class Prepared(Network):
    """A network behind the transforms its test images go through; images in 0..1 enter.

    Args:
        network: takes what the transforms give.
        transforms: that draw nothing, such as CentreCrop and Normalise.
        image_shape: of the images before the transforms.
    """

    def __init__(
        self,
        network: Network,
        transforms: Sequence[Transform],
        image_shape: tuple[int, int, int],
    ) -> None:
        super().__init__(image_shape, network.n_classes)
        self.network = network
        self.transforms = tuple(transforms)
        self.name = network.name

    def prepare(self, images: Tensor) -> Tensor:
        """What the network sees of the images."""
        draws = Draws(stream_key(0), torch.arange(len(images), device=images.device))
        for transform in self.transforms:
            images = transform(images, draws)
        return images

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """What the network says of the images once they are prepared."""
        output: Output = self.network(
            self.prepare(self.checked(images)), targets, couplings=couplings
        )
        return output


@dataclass(frozen=True, eq=False)
class Subject:
    """A trained network with the images it is tested on.

    Attributes:
        name: what figures call it.
        network: takes images in 0..1 as ``source`` has them.
        source: test images.
        dataset: the source's name.
        run: the folder it was trained in, if there is one.
        facts: what the run's ``result.json`` says, if there is one.
    """

    name: str
    network: Network
    source: ImageSet | Generated
    dataset: str = ""
    run: Path | None = None
    facts: dict[str, object] | None = None

    def batch(self, count: int) -> Batch:
        """The first ``count`` test images of an order that is the same for every network."""
        order = Batches(self.source, 1, seed=0).order(0)[:count]
        return Batches(self.source, max(1, count), seed=0).batch(order)


def open_subject(
    place: str | Path,
    *,
    data_dir: str | Path | None = None,
    dataset: str | None = None,
    transforms: Sequence[Transform] | None = None,
    split: str = "test",
    device: str | torch.device = "cpu",
) -> Subject:
    """Open a run folder, a weight file, or the shipped weights of a recipe's name.

    Args:
        place: which.
        data_dir: the data folder; see :func:`torchcaps.data.load`.
        dataset: test images; None takes those the network was made for.
        transforms: what they go through; None takes the network's own.
        split: of the data set.
        device: where to look at them.
    """
    weights = find_weights(place)
    network = load_network(weights, device=device)
    run = weights.parent if (weights.parent / "run.json").is_file() else None
    recipe = str(_read(weights.parent / "run.json").get("recipe") or network.name)
    inferred, shape, usual = data_of(recipe, network)
    name = dataset or inferred
    source = load(name, split, root=data_dir).to(device)
    if isinstance(source, ImageSet) and shape is not None:
        source = source.resize(*shape)
    first = torch.zeros(1, dtype=torch.long, device=device)
    channels, height, width = Batches(source, 1).batch(first).images.shape[1:]
    steps = usual if transforms is None else tuple(transforms)
    if transforms is None and dataset is not None:
        steps = fitting((channels, height, width), network.image_shape)
    prepared = Prepared(network, steps, (channels, height, width)).eval() if steps else network
    title = f"{recipe} {weights.parent.name}" if run else weights.stem
    return Subject(title, prepared, source, name, run, _read(weights.parent / "result.json"))


def find_weights(place: str | Path) -> Path:
    """The weight file of a run folder, of a path, or of a recipe's name."""
    path = Path(place)
    if path.is_file():
        return path
    if path.is_dir():
        if (path / WEIGHTS).is_file():
            return path / WEIGHTS
        raise FileNotFoundError(f"{path} has no {WEIGHTS}: give the folder of a finished run")
    shipped = Path(__file__).parents[1] / "weights" / f"{str(place).replace('/', '-')}.safetensors"
    if shipped.is_file():
        return shipped
    raise FileNotFoundError(
        f"there is no run folder, weight file or shipped weights {str(place)!r}: "
        "train first, or check the path"
    )


def data_of(
    recipe: str, network: Network
) -> tuple[str, tuple[int, int] | None, tuple[Transform, ...]]:
    """Data set, size to resize it to (or None) and test transforms, inferred from a name.

    Names are ``paper/dataset-variant``. Sizes and channels are fitted to the network.
    """
    plain = recipe.rpartition("/")[2].replace("-", "").replace("_", "")
    known = [name for name in CATALOGUE if plain.startswith(name.replace("_", ""))]
    if not known:
        raise ValueError(
            f"{recipe!r} does not say which data set it is for: name one of {', '.join(CATALOGUE)}"
        )
    entry = CATALOGUE[max(known, key=len)]
    channels, height, width = entry.shape
    size = None
    wanted = network.image_shape
    if height > 1.5 * wanted[1]:
        size = (round(1.5 * wanted[1]), round(1.5 * wanted[2]))
        height, width = size
    return entry.name, size, fitting((channels, height, width), wanted)


def fitting(have: tuple[int, ...], want: tuple[int, ...]) -> tuple[Transform, ...]:
    """Transforms that give images of one shape another number of channels, and cut the middle."""
    steps: list[Transform] = []
    if have[0] == 1 and want[0] > 1:
        steps.append(Channels(want[0]))
    elif have[0] > want[0] == 1:
        steps.append(Mono())
    if have[1] > want[1]:
        steps.append(CentreCrop(want[1]))
    return tuple(steps)


def _read(path: Path) -> dict[str, object]:
    """A JSON object, or nothing where there is no such file."""
    if not path.is_file():
        return {}
    try:
        read = json.loads(path.read_text())
    except ValueError:
        raise ValueError(f"{path} is not JSON: the run did not write it to its end") from None
    return read if isinstance(read, dict) else {}

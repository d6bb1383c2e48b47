"""Speed of batches, beside a `DataLoader` with per-image transforms.

    PYTHONPATH=src python benchmarks/data.py                     # this machine's CPU
    PYTHONPATH=src python benchmarks/data.py --device cuda --batch 1024 --synthetic

The baseline applies to one image at a time what torchvision's transforms do (Pillow for geometry,
then a float tensor, then mean and standard deviation) in `DataLoader` workers. Each run appends
rows to results/data_speed.csv. On a CPU, ours uses one thread by default, beside two workers. Each
number is the best of three measurements; measure on an idle machine.
"""

import argparse
import csv
import datetime
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from torchcaps.data import (
    AffnistStyle,
    Batches,
    Brightness,
    Contrast,
    Crop,
    DiverseMultiMNIST,
    Flip,
    ImageSet,
    MultiMNIST,
    Normalize,
    PadCrop,
    Shift,
    Source,
    Standardize,
    Strokes,
    Transform,
    load,
)
from torchcaps.provenance import revision

try:
    from PIL import Image, ImageOps
except ImportError:
    sys.stdout.write("Pillow is not installed: no baseline\n")
    HAS_PILLOW = False
else:
    HAS_PILLOW = True

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
COLUMNS = (
    "case",
    "device",
    "images_per_s",
    "baseline_images_per_s",
    "ratio",
    "batch",
    "torch",
    "commit",
    "date",
)


class PerImage(Dataset[tuple[Tensor, ...]]):
    """A data set that makes one image at a time."""

    def __init__(self, data: ImageSet, make: Callable[[ImageSet, int], tuple[Tensor, ...]]) -> None:
        self.data = data
        self.make = make

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return self.make(self.data, index)


def to_tensor(image: "Image.Image") -> Tensor:
    """Convert a Pillow image to float ``[c h w]`` in 0..1."""
    array = np.array(image)
    array = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
    return torch.from_numpy(np.ascontiguousarray(array)).float().div(255)


def pillow(data: ImageSet, index: int) -> "Image.Image":
    """Return one image of the set as a Pillow image."""
    pixels = data.images[index].numpy()
    return Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))


def normalized(image: Tensor) -> Tensor:
    """Subtract the mean, divide by the standard deviation."""
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    return image.sub_(mean).div_(std)


def crop(image: "Image.Image", size: int) -> "Image.Image":
    """Cut a random square window."""
    left, top = (random.randint(0, side - size) for side in image.size)
    return image.crop((left, top, left + size, top + size))


def cifar_standard(data: ImageSet, index: int) -> tuple[Tensor, ...]:
    """Pad and crop, flip, normalize."""
    image = crop(ImageOps.expand(pillow(data, index), 4), 32)
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return normalized(to_tensor(image)), data.labels[index]


def cifar_sabour(data: ImageSet, index: int) -> tuple[Tensor, ...]:
    """Crop to 24, flip, change brightness and contrast, standardize, as Sabour et al. 2017."""
    image = crop(pillow(data, index), 24)
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pixels = to_tensor(image) + random.uniform(-63 / 255, 63 / 255)
    mean = pixels.mean((-2, -1), keepdim=True)
    pixels = (pixels - mean) * random.uniform(0.2, 1.8) + mean
    return (pixels - pixels.mean()) / pixels.std().clamp_min(1e-5), data.labels[index]


def mnist_shift(data: ImageSet, index: int) -> tuple[Tensor, ...]:
    """Shift by up to 2 pixels."""
    return to_tensor(crop(ImageOps.expand(pillow(data, index), 2), 28)), data.labels[index]


def shifted(data: ImageSet, index: int) -> Tensor:
    """Put a digit at a random position of 36x36."""
    canvas = Image.new("L", (36, 36))
    canvas.paste(pillow(data, index), (random.randint(0, 8), random.randint(0, 8)))
    return to_tensor(canvas)


def multimnist(data: ImageSet, index: int) -> tuple[Tensor, ...]:
    """Overlap two digits of different classes, with both as targets."""
    other = random.randrange(len(data))
    while data.labels[other] == data.labels[index]:
        other = random.randrange(len(data))
    a, b = shifted(data, index), shifted(data, other)
    labels = torch.stack([data.labels[index], data.labels[other]])
    return (a + b).clamp_(max=1), labels, torch.stack([a, b])


def affnist_style(data: ImageSet, index: int) -> tuple[Tensor, ...]:
    """Apply a random affine map on 40x40."""
    canvas = Image.new("L", (40, 40))
    canvas.paste(pillow(data, index), (6, 6))
    angle = random.uniform(-20, 20) * np.pi / 180
    cos, sin, shear = np.cos(angle), np.sin(angle), random.uniform(-0.2, 0.2)
    matrix = np.array([[cos, -sin], [sin, cos]]) @ np.array([[1, shear], [0, 1]])
    matrix = np.linalg.inv(matrix @ np.diag([random.uniform(0.8, 1.2) for _ in "xy"]))
    offset = np.array([20.0, 20.0]) - matrix @ [20 + random.uniform(-8, 8) for _ in "xy"]
    terms = (*matrix[0], offset[0], *matrix[1], offset[1])
    warped = canvas.transform((40, 40), Image.Transform.AFFINE, terms, Image.Resampling.BILINEAR)
    return to_tensor(warped), data.labels[index]


def throughput(batches: Iterator[Any], seconds: float, size: Callable[[Any], int]) -> float:
    """Return the images per second over whole batches, after three warm-up batches."""
    for _ in range(3):
        next(batches)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start, count = time.perf_counter(), 0
    for batch in batches:
        count += size(batch)
        if time.perf_counter() - start > seconds:
            break
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return count / (time.perf_counter() - start)


def endless(batches: Batches) -> Iterator[object]:
    """Yield batches epoch after epoch."""
    epoch = 0
    while True:
        yield from batches.epoch(epoch)
        epoch += 1


def per_image(
    data: ImageSet, make: Callable[..., tuple[Tensor, ...]], workers: int
) -> Iterator[object]:
    """Yield batches of a `DataLoader` with per-image transforms, epoch after epoch."""
    loader = DataLoader(
        PerImage(data, make),
        batch_size=128,
        shuffle=True,
        num_workers=workers,
        persistent_workers=True,
        drop_last=True,
    )
    while True:
        yield from loader


def side_by_side(
    ours: Iterator[Any], theirs: Iterator[Any] | None, seconds: float
) -> tuple[float, float | None]:
    """Return the best of three alternating measurements of each."""
    ours_best, theirs_best = 0.0, 0.0
    for _ in range(3):
        ours_best = max(ours_best, throughput(ours, seconds, lambda batch: len(batch.images)))
        if theirs is not None:
            theirs_best = max(theirs_best, throughput(theirs, seconds, lambda batch: len(batch[0])))
    return ours_best, theirs_best or None


def synthetic(count: int, channels: int, size: int) -> ImageSet:
    """Return random images of this size."""
    generator = torch.Generator().manual_seed(0)
    shape = (count, channels, size, size)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    return ImageSet(images, torch.arange(count) % 10, tuple("0123456789"))


def image_set(name: str) -> ImageSet:
    """Load a set whose files are in the data folder."""
    loaded = load(name, download=False)
    assert isinstance(loaded, ImageSet)
    return loaded


def record(path: Path, row: dict[str, object]) -> None:
    """Append one row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.is_file()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=2.0, help="per measurement")
    parser.add_argument("--workers", type=int, default=2, help="workers of the baseline")
    parser.add_argument("--threads", type=int, default=1, help="threads of ours on a CPU")
    parser.add_argument("--synthetic", action="store_true", help="random images of the same size")
    parser.add_argument("--no-baseline", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results/data_speed.csv"))
    parser.add_argument("--only", nargs="*", help="cases whose name contains one of these words")
    return parser.parse_args()


Case = tuple[str, Source, tuple[Transform, ...], ImageSet | None, Callable[..., Any] | None]


def list_cases(device: torch.device, *, use_synthetic: bool) -> tuple[Case, ...]:
    """Return name, set and transforms of each case, and the images and function of its baseline."""
    cifar = synthetic(50_000, 3, 32) if use_synthetic else image_set("cifar10")
    mnist = synthetic(60_000, 1, 28) if use_synthetic else image_set("mnist")
    digits = mnist.to(device)
    standard = (PadCrop(4), Flip(), Normalize(MEAN, STD))
    sabour = (Crop(24), Flip(), Brightness(), Contrast(), Standardize())
    return (
        ("cifar10 pad-crop flip normalize", cifar.to(device), standard, cifar, cifar_standard),
        ("cifar10 crop24 flip color standardize", cifar.to(device), sabour, cifar, cifar_sabour),
        ("mnist shift 2", digits, (Shift(2),), mnist, mnist_shift),
        ("multimnist on the fly", MultiMNIST(digits), (), mnist, multimnist),
        ("multimnist fixed pairs", MultiMNIST(digits, pairs=1000), (), mnist, multimnist),
        ("diverse multimnist", DiverseMultiMNIST(digits), (), mnist, multimnist),
        ("affnist style", AffnistStyle(digits), (), mnist, affnist_style),
        ("strokes", Strokes(60_000, device=device, fresh=True), (), None, None),
    )


def main() -> None:
    """Run the cases, print and record them."""
    options = parse_options()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    name = (
        torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu x{options.threads}"
    )
    for case, source, transforms, data, make in list_cases(device, use_synthetic=options.synthetic):
        if options.only and not any(word in case for word in options.only):
            continue
        batches = Batches(source, options.batch, transforms=transforms, drop_last=True)
        loading = None
        if data is not None and make is not None and not options.no_baseline and HAS_PILLOW:
            loading = per_image(data, make, options.workers)
        ours, theirs = side_by_side(endless(batches), loading, options.seconds)
        row = {
            "case": case,
            "device": name,
            "images_per_s": round(ours),
            "baseline_images_per_s": "" if theirs is None else round(theirs),
            "ratio": "" if theirs is None else round(ours / theirs, 1),
            "batch": options.batch,
            "torch": torch.__version__,
            "commit": revision(),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        }
        record(options.out, row)
        sys.stdout.write(" ".join(f"{key}={value}" for key, value in row.items()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

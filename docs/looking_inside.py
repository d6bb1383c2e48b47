"""Make the pictures of looking-inside.md: shipped networks, and three small ones to compare.

    TORCHCAPS_DATA=... python docs/looking_inside.py --out docs/looking-inside

Takes half an hour or more on one CPU core. Small networks are trained once and kept in ``--keep``.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import torchcaps as tc
from torchcaps import analysis, figures
from torchcaps.analysis import Subject
from torchcaps.data import Batch, Batches, Shift, load
from torchcaps.models.parts.backbones import ConvBackbone
from torchcaps.models.tsai2020 import Conv

SHOWN = ("walk", "reconstructions", "perturbation", "logits", "entropy", "routing-map")


def capsnet() -> tc.Network:
    """Sabour's network with 64 instead of 256 channels and 8 instead of 32 capsule types."""
    return tc.CapsNet((1, 28, 28), 10, backbone=partial(ConvBackbone, out_channels=64), n_types=8)


def attention() -> tc.Network:
    """Tsai's network with 8 capsule types: three capsule layers."""
    backbone = partial(ConvBackbone, out_channels=32, kernel_size=3, stride=2, padding=1)
    convs = (Conv(3, 1), Conv(3, 1))
    return tc.AttentionCapsNet(
        (1, 28, 28), 10, backbone=backbone, primary=Conv(3, 2), n_types=8, convs=convs
    )


def plain() -> tc.Network:
    """A convolutional network without capsules."""
    layers = nn.Sequential(
        nn.Conv2d(1, 32, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(1024, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    return tc.Classifier((1, 28, 28), 10, layers)


def margin(output: tc.Output, batch: Batch) -> torch.Tensor:
    """Margin loss, and 0.0005 times the squared error of the reconstruction."""
    assert output.reconstruction is not None
    loss = tc.margin_loss(output.scores, batch.labels)
    return loss + tc.reconstruction_loss(output.reconstruction, batch.images)


def entropy(output: tc.Output, batch: Batch) -> torch.Tensor:
    """Cross-entropy."""
    return functional.cross_entropy(output.scores, batch.labels)


def trained(
    name: str,
    network: tc.Network,
    loss: Callable[[tc.Output, Batch], torch.Tensor],
    *,
    steps: int,
    keep: Path,
) -> Subject:
    """Train with Adam and one cycle of the learning rate, or read what was trained before."""
    weights = keep / f"{name}.pt"
    if weights.is_file():
        network.load_state_dict(torch.load(weights, weights_only=True))
    else:
        batches = Batches(load("mnist", "train"), 64, transforms=[Shift(2)])
        optimizer = torch.optim.Adam(network.parameters(), 2e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
        step = 0
        while step < steps:
            for batch in batches.epoch(step):
                value = loss(network.train()(batch.images, batch.labels), batch)
                optimizer.zero_grad()
                value.backward()
                optimizer.step()
                schedule.step()
                step += 1
                if step == steps:
                    break
        torch.save(network.state_dict(), weights)
    return Subject(name, network.eval(), load("mnist", "test"), "mnist")


def shipped(recipe: str, dataset: str) -> Subject:
    """A full network whose weights come with the package."""
    network = tc.build(recipe, pretrained=True).eval()
    return Subject(recipe, network, load(dataset, "test"), dataset)


def main() -> None:
    """Train, draw, and keep the small pictures and the numbers the page quotes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/looking-inside"))
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "looking-inside")
    parser.add_argument("--steps", type=int, default=800)
    arguments = parser.parse_args()
    arguments.keep.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    train = partial(trained, keep=arguments.keep)
    steps = arguments.steps
    small = train("small CapsNet", capsnet(), margin, steps=steps)
    deep = train("three capsule layers", attention(), entropy, steps=steps)
    cnn = train("plain CNN", plain(), entropy, steps=steps)
    digits = shipped("sabour2017/mnist-modern", "mnist")
    pairs = shipped("sabour2017/multimnist-modern", "multimnist")

    effort = figures.Effort(samples=200, attacked=50, traced=32, pairs=2000)
    pictures = figures.draw([digits], only=SHOWN, effort=effort)[0]
    pictures += figures.draw([digits], only=("parse-tree",), effort=effort)[0]
    pictures += _renamed(figures.draw([deep], only=("parse-tree",), effort=effort)[0], "deep")
    pictures += figures.draw([pairs], only=("segmentation",), effort=effort)[0]
    together = ("alignment", "equivariance", "robustness", "adversarial")
    pictures += figures.draw([small, deep, cnn], only=together, effort=effort)[0]
    more = figures.Effort(samples=2000, pairs=4000)
    pictures += _renamed(figures.draw([digits], only=("equivariance",), effort=more)[0], "full")
    choi = shipped("choi2019/mnist", "mnist")
    pictures += _renamed(figures.draw([choi], only=("alignment",), effort=more)[0], "full")
    with tempfile.TemporaryDirectory() as folder:
        command = "python docs/looking_inside.py"
        figures.write_report(pictures, folder, title="Looking inside", command=command)
        arguments.out.mkdir(parents=True, exist_ok=True)
        for picture in pictures:
            if picture.name == "entropy":  # flat: the page has its numbers in a table
                continue
            shutil.copy(Path(folder) / f"{picture.name}.png", arguments.out)
    everyone = (digits, pairs, small, deep, cnn)
    numbers = {subject.name: _accuracy(subject) for subject in everyone} | {
        "untrained CapsNet": _untrained(small)
    }
    data = {
        p.name: figures.plain(p.data)
        for p in pictures
        if p.name.removesuffix("-full")
        in (
            "logits",
            "entropy",
            "segmentation",
            "equivariance",
            "alignment",
            "reconstructions",
            "adversarial",
        )
    }
    (arguments.out / "numbers.json").write_text(json.dumps({**numbers, **data}, indent=1) + "\n")


def _renamed(pictures: list[figures.Picture], suffix: str) -> list[figures.Picture]:
    return [
        figures.Picture(f"{p.name}-{suffix}", p.group, p.title, p.caption, p.figure, p.data)
        for p in pictures
    ]


def _accuracy(subject: Subject) -> float:
    batch = subject.batch(2_000)
    scores = analysis.in_parts(subject.network, batch.images).scores
    return round(100 * float(analysis.correct(scores, batch.labels).float().mean()), 2)


def _untrained(subject: Subject) -> object:
    """Alignment ratios of the same network before training."""
    torch.manual_seed(0)
    batch = subject.batch(200)
    result = analysis.alignment(capsnet().eval(), batch.images, batch.labels)
    return figures.plain(result.mean)


if __name__ == "__main__":
    main()

"""Studies: every routing and three plain heads on one backbone, by one recipe, over several seeds.

A study is data; :func:`study_recipe` makes the recipe of one data set and head. The command line
names it ``compare/STUDY/DATASET/HEAD``, such as ``compare/quick/fashion_mnist/em``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torchcaps.data import Flip, PadCrop, find
from torchcaps.models import register_network
from torchcaps.models.demo import DEMO_ROUTINGS
from torchcaps.models.parts.heads import POOLS, HeadFactory, Pool
from torchcaps.recipes.base import Published, Recipe
from torchcaps.recipes.losses import shared_cross_entropy
from torchcaps.recipes.schedules import one_cycle
from torchcaps.routing import RoutingFactory
from torchcaps.routing.base import preview_routing

PREFIX = "compare/"
"""Start of the names of studies' recipes."""

Head = RoutingFactory | Pool

PLAIN: dict[str, Head] = {f"plain-{pool}": pool for pool in POOLS}
HEADS: dict[str, Head] = {**DEMO_ROUTINGS, **PLAIN}
"""Every routing of the package as the demos tune it, and the heads without capsules."""

DATASETS: Mapping[str, Mapping[str, Any]] = {
    "fashion_mnist": {"dataset": "fashion_mnist"},
    "cifar10": {"dataset": "cifar10", "train_transforms": (PadCrop(4), Flip())},
    "multimnist": {"dataset": "multimnist", "measure": "top2", "reconstruction_weight": 0.005},
    # trained on digits that are shifted and no more
    "affnist_style": {"dataset": "expanded_mnist"},
    "strokes": {"dataset": "strokes"},
}
"""What a recipe of each data set says."""

TRANSFORMED: Mapping[str, str] = {"affnist_style": "affnist_style"}
"""Data set of a study -> set of transformed images that its networks are tested on too."""


@dataclass(frozen=True)
class Study:
    """A comparison of heads.

    Attributes:
        name: its name on the command line.
        datasets: names of :data:`DATASETS`.
        seeds: seeds of the runs.
        epochs: passes over the training images.
        images: training images; 0 for all.
        test_images: test images; 0 for all.
        batch_size: images per step.
        lr: peak of the learning rate.
        width: channels of the backbone's first block.
        stride: stride of the backbone's first convolution.
        neck: channels of the 1x1 convolution under dynamic routing.
        probed: images of each measurement of robustness, couplings and overlap.
        attacked: images under attack.
        pairs: pairs of drawn digits for equivariance.
        steps: timed training steps and inferences.
    """

    name: str
    datasets: tuple[str, ...]
    seeds: tuple[int, ...]
    epochs: int
    images: int
    test_images: int
    batch_size: int
    lr: float
    width: int
    stride: int
    neck: int
    probed: int
    attacked: int
    pairs: int
    steps: int


STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Study(
            "full",
            ("fashion_mnist", "affnist_style", "multimnist", "cifar10"),
            seeds=(0, 1, 2),
            epochs=10,
            images=0,
            test_images=0,
            batch_size=256,
            lr=3e-3,
            width=32,
            stride=2,
            neck=512,
            probed=1000,
            attacked=200,
            pairs=4000,
            steps=20,
        ),
        Study(
            "quick",
            ("fashion_mnist", "affnist_style", "multimnist"),
            seeds=(0, 1, 2),
            epochs=2,
            images=3000,
            test_images=2000,
            batch_size=25,
            lr=5e-3,
            width=8,
            stride=2,
            neck=256,
            probed=80,
            attacked=40,
            pairs=1500,
            steps=5,
        ),
        Study(
            "smoke",
            ("strokes",),
            seeds=(0,),
            epochs=1,
            images=200,
            test_images=100,
            batch_size=25,
            lr=5e-3,
            width=8,
            stride=2,
            neck=256,
            probed=20,
            attacked=10,
            pairs=600,
            steps=1,
        ),
    )
}
"""Name -> study.

``full`` is for a GPU, ``quick`` for one core of a processor. ``smoke`` needs no data and only shows
that every head trains and can be measured.
"""


def study_recipe(study: Study, dataset: str, name: str, head: Head) -> Recipe:
    """Return the recipe of a head on a data set, and register its network."""
    settings = dict(DATASETS[dataset])
    facts = find(settings["dataset"])
    draws = bool(settings.get("reconstruction_weight")) and callable(head)
    if not draws:
        settings.pop("reconstruction_weight", None)
    full_name = f"{PREFIX}{study.name}/{dataset}/{name}"
    make = HeadFactory(head, study.width, study.stride, study.neck, draws)
    register_network(full_name, make, image_shape=facts.shape, n_classes=len(facts.classes))
    climbs = callable(head) and preview_routing(head).objective_parameters
    return Recipe(
        full_name,
        full_name,
        published=Published("no paper", what="a study of this package"),
        notes="One of many heads on one backbone.",
        loss=shared_cross_entropy,
        lr=study.lr,
        coefficient_lr=1e-3 if climbs else 0.0,
        schedule=partial(one_cycle, peak=0.3),
        epochs=study.epochs,
        batch_size=study.batch_size,
        limit=study.images,
        test_limit=study.test_images,
        hold_out=False,
        **settings,
    )

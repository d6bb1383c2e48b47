"""The recipes: every published row is there, fits its data and network, and only decides."""

import dataclasses
import functools
import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import torchcaps as tc
from helpers.data.batches import draws
from helpers.networks.published import COUNTS
from torchcaps import data
from torchcaps.data import augment, find
from torchcaps.data.augment import as_float
from torchcaps.models.zoo import count_parameters
from torchcaps.recipes import RECIPES, Recipe, all_recipes, get, twins
from torchcaps.recipes.tsai2020 import NORMALIZE
from torchcaps.results.summary import TITLES
from torchcaps.routing import DiscriminativeRouting

FIXED = [
    "sabour2017/mnist",
    "sabour2017/multimnist",
    "tsai2020/cifar10-resnet",
    "tsai2020/cifar100-resnet",
    "tsai2020/cifar10-simple",
    "tsai2020/cifar10-simple-dynamic",
    "tsai2020/cifar10-simple-em",
    "tsai2020/diversemultimnist-matrix",
    "tsai2020/diversemultimnist-vector",
    "choi2019/mnist",
    "choi2019/cifar10",
    "zhao2020/cifar10",
    "zhao2020/fashion-mnist",
    "zhao2020/affnist",
    "yang2021/mnist-l1",
    "yang2021/mnist-l2",
    "yang2021/fashion-mnist-l1",
    "yang2021/cifar10-l1",
]

MODERN = [
    "sabour2017/mnist",
    "sabour2017/multimnist",
    "tsai2020/cifar10-resnet",
    "tsai2020/diversemultimnist-matrix",
    "tsai2020/diversemultimnist-vector",
    "choi2019/mnist",
    "choi2019/cifar10",
    "zhao2020/cifar10",
    "zhao2020/fashion-mnist",
    "yang2021/mnist-l1",
    "yang2021/mnist-l2",
]

# Error rates are written as the papers print them.
PRINTED = {
    "sabour2017/mnist-baseline": 100 - 0.39,
    "sabour2017/mnist-plain-1": 100 - 0.34,
    "sabour2017/mnist-1": 100 - 0.29,
    "sabour2017/mnist-plain": 100 - 0.35,
    "sabour2017/mnist": 100 - 0.25,
    "sabour2017/multimnist-baseline": 100 - 8.1,
    "sabour2017/multimnist-1": 100 - 7.5,
    "sabour2017/multimnist": 100 - 5.2,
    "sabour2017/cifar10": 100 - 10.6,
    "sabour2017/smallnorb": 100 - 2.7,
    "sabour2017/svhn": 100 - 4.3,
    "sabour2017/affnist": 79.0,
    "sabour2017/affnist-style-baseline": 66.0,
    "tsai2020/cifar10-simple-dynamic": 84.08,
    "tsai2020/cifar100-resnet-em": 58.08,
    "tsai2020/cifar100-resnet18": 77.92,
    "tsai2020/diversemultimnist-vector": 85.74,
    "choi2019/mnist": 99.46,
    "choi2019/affnist": 91.6,
    "choi2019/cifar10": 88.61,
    "choi2019/cifar10-unaugmented": 87.19,
    "choi2019/cifar10-ensemble": 90.11,
    "choi2019/cifar10-2-32": 87.01,
    "choi2019/cifar10-2-32-unaugmented": 85.46,
    "choi2019/cifar10-dynamic-unaugmented": 63.1,
    "zhao2020/svhn": 96.79,
    "zhao2020/affnist-em": 78.29,
    "zhao2020/multimnist": 94.5,
    "zhao2020/smallnorb-em-3": 92.33,
    "yang2021/mnist-dynamic": 100 - 0.34,
    "yang2021/mnist-l1-plain": 100 - 0.44,
    "yang2021/fashion-mnist-l1": 100 - 6.76,
    "yang2021/cifar10-l1": 100 - 14.04,
    "yang2021/multimnist-l2": 100 - 7.54,
}

everyone = pytest.mark.parametrize("recipe", RECIPES.values(), ids=list(RECIPES))


@functools.cache
def network(name: str, iterations: int | None) -> tc.Network:
    with torch.device("meta"):
        return tc.build(name, iterations=iterations)


def network_of(recipe: Recipe) -> tc.Network:
    return network(recipe.network, recipe.iterations)


def samples(dataset: str, resize: int) -> Tensor:
    """Random bytes of the set's shape, black and white ones among them."""
    channels, height, width = find(dataset).shape
    height, width = (resize, resize) if resize else (height, width)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (6, channels, height, width), generator=generator)
    images[0], images[1] = 0, 255
    return images.byte()


def test_every_fixed_name_is_a_recipe() -> None:
    assert [name for name in FIXED if name not in RECIPES] == []
    assert [name for name in MODERN if f"{name}-modern" not in RECIPES] == []
    assert len(RECIPES) == len(all_recipes())
    assert all(name == recipe.name for name, recipe in RECIPES.items())


def test_the_printed_numbers_are_the_papers() -> None:
    for name, accuracy in PRINTED.items():
        assert RECIPES[name].published.value == pytest.approx(accuracy), name


@pytest.mark.parametrize(
    ("paper", "rows"),
    # Sabour: 8 of Table 1, 3 of section 7, 1 of Figure A.2, 2 of affNIST, each twice.
    # Tsai: 16 + 30 + 5.
    # Choi: 2 + 2 of MNIST and affNIST, 4 of CIFAR-10, 20 of Table 2, 4 of CapsuleNet.
    # Zhao: 6 + 6 + 2 of section 4.1, 3 + 6 + 1 + 7. Yang: 5 + 5 + 3 + 3.
    # Mazzia: 3, and MNIST without the decoder. Ribeiro: 4, and the network of one layer.
    # Hahn: six heads on two data sets.
    [
        ("sabour2017", 16),
        ("hinton2018", 2),
        ("tsai2020", 51),
        ("choi2019", 32),
        ("zhao2020", 31),
        ("yang2021", 16),
        ("mazzia2021", 4),
        ("ribeiro2020", 5),
        ("hahn2019", 12),
    ],
)
def test_no_published_row_is_missing(paper: str, rows: int) -> None:
    added = ("-modern", "-routed", "-control-")
    published = [name for name in RECIPES if not any(part in name for part in added)]
    assert sum(name.startswith(f"{paper}/") for name in published) == rows


def test_every_size_in_the_papers_belongs_to_a_recipe() -> None:
    sizes = {name: learned for name, learned, *_ in COUNTS}
    trained = {recipe.network for recipe in RECIPES.values()}
    assert [name for name in sizes if name not in trained] == []
    for recipe in RECIPES.values():
        if recipe.network in sizes:
            assert network_of(recipe).n_parameters == sizes[recipe.network], recipe.name


@everyone
def test_a_recipe_says_where_its_number_is_and_what_it_is(recipe: Recipe) -> None:
    published = recipe.published
    assert published.where
    if published.value is not None:
        assert 0 < published.value < 100
        assert published.what
    if published.spread is not None:
        assert 0 < published.spread < 5
    if not recipe.name.startswith("demo/"):
        assert published.what
        assert recipe.notes.count(".") >= 1
    paper, _, variant = recipe.name.partition("/")
    assert paper in TITLES
    assert variant


@everyone
def test_images_of_its_data_set_become_what_its_network_takes(recipe: Recipe) -> None:
    net = network_of(recipe)
    for dataset, transforms in (
        (recipe.dataset, recipe.train_transforms),
        (recipe.dataset, recipe.test_transforms),
        (recipe.test_dataset or recipe.dataset, recipe.test_transforms),
    ):
        images = samples(dataset, recipe.resize)
        for transform in transforms:
            images = transform(images, draws(len(images)))
        images = as_float(images)
        assert tuple(images.shape) == (6, *net.image_shape)
        assert images.isfinite().all()
        if getattr(net, "decoder", None) is not None:
            assert images.min() >= 0
            assert images.max() <= 1 + 1e-5


@everyone
def test_the_parts_of_a_recipe_fit_its_network(recipe: Recipe) -> None:
    net = network_of(recipe)
    assert (recipe.reconstruction_weight > 0) == (getattr(net, "decoder", None) is not None)
    routings = [m for m in net.modules() if isinstance(m, DiscriminativeRouting)]
    assert (recipe.coefficient_lr > 0) == bool(routings)
    assert (recipe.measure == "top2") == (recipe.dataset == "multimnist")
    assert (recipe.measure == "threshold") == (recipe.dataset == "diverse_multimnist")
    if recipe.dataset not in ("multimnist", "diverse_multimnist"):
        assert getattr(net, "n_objects", 1) == 1
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = recipe.optimizer([weight], lr=recipe.lr, weight_decay=recipe.weight_decay)
    weight.square().sum().backward()
    optimizer.step()
    assert (weight < 1).all()


@everyone
def test_its_loss_takes_its_scores(recipe: Recipe) -> None:
    n_classes = network_of(recipe).n_classes
    scores = torch.rand(6, n_classes, requires_grad=True)
    targets = torch.arange(6) % n_classes
    if recipe.measure != "top1":
        other = torch.nn.functional.one_hot((targets + 1) % n_classes, n_classes)
        targets = torch.nn.functional.one_hot(targets, n_classes) + other
    loss = recipe.loss(
        scores,
        targets,
        step=torch.tensor(10.0),
        share=torch.tensor(0.1),
        smoothing=recipe.label_smoothing,
    )
    assert loss.shape == ()
    (gradient,) = torch.autograd.grad(loss, scores)
    assert gradient.isfinite().all()
    assert gradient.abs().sum() > 0


def test_every_published_row_of_sabour_has_the_loss_scale_and_the_digits_of_the_text() -> None:
    rows = [
        r
        for r in RECIPES.values()
        if r.name.startswith("sabour2017/") and r.published.value and "-modern" not in r.name
    ]
    assert {row.reconstruction_weight for row in rows} == {0.0, 0.0005}
    table_1 = [row for row in rows if row.published.where == "Table 1"]
    assert not any(row.hold_out for row in table_1)
    assert RECIPES["sabour2017/multimnist-modern"].reconstruction_weight == 0.01


@pytest.mark.parametrize(
    ("name", "changes"), [("hinton2018/smallnorb", True), ("sabour2017/cifar10", False)]
)
def test_brightness_reaches_the_network_unless_the_images_are_standardized_after_it(
    name: str, changes: bool
) -> None:
    transforms = RECIPES[name].train_transforms
    without = tuple(t for t in transforms if not isinstance(t, data.Brightness))
    assert len(without) == len(transforms) - 1
    images = samples(RECIPES[name].dataset, RECIPES[name].resize)[2:]

    def applied(chosen: tuple[data.Transform, ...]) -> Tensor:
        made = images
        for transform in chosen:
            if not isinstance(transform, data.Crop | data.Flip | data.Contrast):
                made = transform(made, draws(len(made)))
        return as_float(made)

    difference = (applied(transforms) - applied(without)).abs().amax().item()
    assert (difference > 0.01) is changes


@pytest.mark.parametrize("name", MODERN)
def test_a_modern_recipe_trains_the_same_network_for_the_same_number(name: str) -> None:
    faithful, modern = RECIPES[name], RECIPES[f"{name}-modern"]
    for field in ("network", "dataset", "test_dataset", "iterations", "measure", "published"):
        assert getattr(modern, field) == getattr(faithful, field), field
    assert modern.schedule is not faithful.schedule
    assert not modern.hold_out


def test_diverse_digits_take_the_mean_over_classes_as_sgd_at_a_tenth_needs() -> None:
    for name, recipe in RECIPES.items():
        if recipe.dataset == "diverse_multimnist":
            targets = torch.eye(10)[:4] + torch.eye(10)[4:8]
            loss = recipe.loss(
                torch.zeros(4, 10),
                targets,
                step=torch.zeros(()),
                share=torch.zeros(()),
                smoothing=0.0,
            )
            assert loss.item() == pytest.approx(math.log(2)), name


def test_lengths_are_the_authors_steps() -> None:
    for name, steps in (
        ("sabour2017/mnist", 300_000),
        ("sabour2017/cifar10", 600_000),
        ("sabour2017/smallnorb", 300_000),
        ("sabour2017/svhn", 300_000),
        ("zhao2020/affnist", 40_000),
        ("zhao2020/multimnist", 40_000),
        ("yang2021/multimnist-l1", 200_000),
    ):
        recipe = RECIPES[name]
        images = find(recipe.dataset).counts["train"]
        fit = images - images // 10 if recipe.hold_out else images
        taken = recipe.epochs * (fit // recipe.batch_size)
        assert taken == pytest.approx(steps, rel=0.002), name


@pytest.mark.parametrize(
    "name", [name for name, recipe in RECIPES.items() if recipe.dataset == "multimnist"]
)
def test_pairs_are_scored_on_fewer_than_in_the_papers_and_say_so(name: str) -> None:
    assert find("multimnist").counts["test"] == 10_000
    assert RECIPES[name].test_draws == 10
    assert "100,000 pairs" in RECIPES[name.partition("-control-")[0]].notes


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.warmup])
def test_a_rate_that_rises_first_is_in_the_notes(name: str) -> None:
    assert "rate rises" in RECIPES[name.partition("-control-")[0]].notes


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ("Sabour 2017, MNIST", "sabour2017/mnist"),
        ("Sabour 2017, CIFAR-10", "sabour2017/cifar10"),
        ("Sabour 2017, smallNORB (resized to 48)", "sabour2017/smallnorb"),
        ("Hinton 2018, smallNORB (resized to 48)", "hinton2018/smallnorb"),
        ("Choi 2019, MNIST", "choi2019/mnist"),
        ("Choi 2019, CIFAR-10", "choi2019/cifar10"),
        ("Tsai 2020, CIFAR", "tsai2020/cifar10-resnet"),
        ("Tsai 2020, DiverseMultiMNIST", "tsai2020/diversemultimnist-vector"),
        ("Zhao 2020, CIFAR-10", "zhao2020/cifar10"),
        ("Zhao 2020, smallNORB (resized to 48)", "zhao2020/smallnorb"),
    ],
)
def test_the_table_of_augmentations_is_what_the_recipes_do(row: str, name: str) -> None:
    names = {**vars(data), "mean": NORMALIZE.mean, "std": NORMALIZE.std}
    (cell,) = re.findall(rf"^\| {re.escape(row)} \| (.+) \|$", augment.__doc__ or "", re.MULTILINE)
    assert repr(eval(f"({cell},)", names)) == repr(RECIPES[name].train_transforms)


class Refuse(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"listing recipes ran {func}")


def test_listing_makes_no_tensor_and_draws_nothing() -> None:
    state = torch.get_rng_state()
    with Refuse():
        made = all_recipes()
        settings_of = [recipe.settings() for recipe in made]
    assert torch.equal(torch.get_rng_state(), state)
    assert len(settings_of) == len(RECIPES)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made[0].__setattr__("lr", 1.0)


def test_an_unknown_recipe_is_answered_with_the_nearest() -> None:
    assert get("sabour2017/mnist") is RECIPES["sabour2017/mnist"]
    with pytest.raises(ValueError, match="did you mean 'tsai2020/cifar10-resnet'"):
        get("tsai2020/cifar-resnet")
    with pytest.raises(ValueError, match="torchcaps list names them all"):
        get("xyz")


def test_recipes_that_train_one_network_in_one_way_are_twins() -> None:
    assert twins("tsai2020/cifar10-simple-2") == (
        "tsai2020/cifar10-simple",
        "tsai2020/cifar10-simple-2",
    )
    assert twins("choi2019/cifar10-4-32") == ("choi2019/cifar10", "choi2019/cifar10-4-32")
    assert twins("tsai2020/cifar10-simple-3") == ("tsai2020/cifar10-simple-3",)
    assert twins("me/mine") == ("me/mine",)
    for name, recipe in RECIPES.items():
        for twin in map(get, twins(name)):
            assert twin.settings() == recipe.settings()
            assert count_parameters(twin.network) == count_parameters(recipe.network)

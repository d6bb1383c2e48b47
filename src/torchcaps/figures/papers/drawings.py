"""The figures that each paper draws of its training runs, as recipes."""

from collections.abc import Mapping

from torchcaps.figures.papers.panels import Column, Counts, Curves, Drawing

ITERATIONS = range(1, 6)


def _simple(kind: str = "") -> dict[int, str]:
    """Return Tsai's rows on CIFAR-10 with the simple backbone, by routing iterations."""
    return {n: f"tsai2020/cifar10-simple{kind}-{n}" for n in ITERATIONS}


def _by_iterations(title: str, kind: str = "") -> Curves:
    recipes = {f"{n} iteration{'s' * (n > 1)}": recipe for n, recipe in _simple(kind).items()}
    return Curves(title, recipes)


def _light(title: str, dataset: str, column: Column, suffix: str = "") -> Curves:
    recipes = {
        "pairwise": f"zhao2020/{dataset}-light{suffix}",
        "dynamic": f"zhao2020/{dataset}-light-dynamic{suffix}",
    }
    return Curves(title, recipes, column)


def _lights(suffix: str = "") -> tuple[Curves, ...]:
    columns: tuple[Column, ...] = ("train", "test")
    sets = {"fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "svhn": "SVHN"}
    return tuple(
        _light(title, dataset, column, suffix)
        for dataset, title in sets.items()
        for column in columns
    )


def _yang(title: str, dataset: str) -> Curves:
    kinds = {"dynamic": "dynamic", "L1": "l1", "L2": "l2"}
    return Curves(title, {label: f"yang2021/{dataset}-{kind}" for label, kind in kinds.items()})


def _capsnet(title: str, dataset: str) -> Curves:
    recipes = {"3 iterations": f"sabour2017/{dataset}", "1 iteration": f"sabour2017/{dataset}-1"}
    return Curves(title, recipes, "loss")


DRAWINGS: Mapping[str, tuple[Drawing, ...]] = {
    "sabour2017": (
        Drawing(
            "Figure A.2",
            "Training loss with one and three routing iterations. The paper draws CIFAR-10.",
            (_capsnet("CIFAR-10", "cifar10"), _capsnet("MNIST", "mnist")),
        ),
    ),
    "tsai2020": (
        Drawing(
            "Figure 4",
            "CIFAR-10 with the simple backbone: accuracy by epoch, and by routing iterations. A is "
            "without LayerNorm, B sequential, C with activations. Memory and inference time of "
            "this backbone are not measured; [speed](../speed.md) has the ResNet backbone.",
            (
                _by_iterations("inverted attention"),
                _by_iterations("dynamic routing", "-dynamic"),
                _by_iterations("EM routing", "-em"),
                Counts(
                    "all, by iterations",
                    {
                        "inverted attention": _simple(),
                        "A": _simple("-a"),
                        "B": _simple("-b"),
                        "C": _simple("-c"),
                        "dynamic": _simple("-dynamic"),
                        "EM": _simple("-em"),
                    },
                ),
            ),
        ),
        Drawing(
            "Figure 5",
            "DiverseMultiMNIST: accuracy by epoch.",
            (
                Curves(
                    "DiverseMultiMNIST",
                    {
                        "matrix poses": "tsai2020/diversemultimnist-matrix",
                        "vector poses": "tsai2020/diversemultimnist-vector",
                        "dynamic routing": "tsai2020/diversemultimnist-vector-dynamic",
                        "CNN": "tsai2020/diversemultimnist-baseline",
                        "CNN, learned pooling": "tsai2020/diversemultimnist-baseline-learned",
                    },
                ),
            ),
        ),
    ),
    "zhao2020": (
        Drawing(
            "Figure 4",
            "Pairwise agreement and dynamic routing on one network, without augmentation.",
            _lights(),
        ),
        Drawing("Figure 5", "The same with augmentation.", _lights("-augmented")),
    ),
    "yang2021": (
        Drawing(
            "Figure 3",
            "Accuracy by epoch of three routings on four data sets.",
            (
                _yang("MNIST", "mnist"),
                _yang("Fashion-MNIST", "fashion-mnist"),
                _yang("CIFAR-10", "cifar10"),
                _yang("MultiMNIST", "multimnist"),
            ),
        ),
        Drawing(
            "Figure 4",
            "Time of 100 training steps. [Speed](../speed.md) has one of these networks so far, "
            "which compares nothing.",
            (),
        ),
    ),
}
"""Paper's key -> its figures."""

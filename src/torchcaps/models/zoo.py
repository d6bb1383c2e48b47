"""Every network by name: those of the papers, the demo's, and those that users register."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from torchcaps.errors import InputError, UsageError, select, suggest
from torchcaps.models import (
    choi2019,
    demo,
    hahn2019,
    hinton2018,
    mazzia2021,
    ribeiro2020,
    sabour2017,
    tsai2020,
    yang2021,
    zhao2020,
)
from torchcaps.models.entry import Entry
from torchcaps.models.network import ImageShape, Network

NAME = re.compile(r"\w[\w.-]{0,99}(/\w[\w.-]{0,99}){0,3}", re.ASCII)
"""The form of a network's or a recipe's name, such as ``paper/dataset-variant``."""


ZOO: dict[str, Entry] = {
    f"{paper}/{name}": entry
    for paper, entries in (
        ("sabour2017", sabour2017.networks()),
        ("hinton2018", hinton2018.networks()),
        ("tsai2020", tsai2020.networks()),
        ("choi2019", choi2019.networks()),
        ("zhao2020", zhao2020.networks()),
        ("yang2021", yang2021.networks()),
        ("hahn2019", hahn2019.networks()),
        ("mazzia2021", mazzia2021.networks()),
        ("ribeiro2020", ribeiro2020.networks()),
        ("demo", demo.networks()),
    )
    for name, entry in entries.items()
}
"""Name -> network. Only :func:`register_network` adds to it."""


def list_models(pattern: str = "*", *, pretrained: bool = False) -> list[str]:
    """Return the names that :func:`build` knows.

    Args:
        pattern: only names that match it, such as ``*cifar10*``.
        pretrained: only the names that have weights in this package: networks, and recipes such as
            ``zhao2020/cifar10-modern``.
    """
    names: Iterable[str] = ZOO
    if pretrained:
        from torchcaps.models.weights.pretrained import pretrained_names

        names = pretrained_names()
    return select(pattern, names)


def register_network(
    name: str,
    make: Callable[[ImageShape, int], Network],
    *,
    image_shape: ImageShape,
    n_classes: int = 10,
) -> None:
    """Make a network of your own known by name in this process.

        tc.register_network("me/small", SmallNet, image_shape=(1, 28, 28))

    Afterwards :func:`build`, :func:`save`, :func:`load` and recipes take the name. A saved file
    holds the name and never code: a process that loads it must register the network first.

    Args:
        name: name of the network, such as ``me/small``. A name of another network is refused;
            registering the same network again changes nothing.
        make: a Network class, a partial of one, or a function, called with the image shape and the
            number of classes. It must also work on the meta device, where tensors have no values.
        image_shape: channels, height and width of the images it is built for by default.
        n_classes: number of classes it is built for by default.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UsageError(
            f"a network's name must be words of letters, digits, '_', '-' or '.' with '/' between "
            f"them, such as 'me/small', not {name!r}"
        )
    entry = Entry(make, image_shape, n_classes)
    if name in ZOO:
        if ZOO[name] != entry:
            raise UsageError(
                f"there is another network {name!r} already: choose another name, or start a new "
                "Python process if you changed this one"
            )
        return
    refused = f"{name!r} cannot be registered:"
    if isinstance(make, nn.Module) or not callable(make):
        what = f"a {type(make).__name__}" if isinstance(make, nn.Module) else repr(make)
        raise UsageError(f"{refused} make must be a class or a function, not {what}")
    call = f"make({image_shape}, {n_classes})"
    try:
        with torch.device("meta"):
            network = make(image_shape, n_classes)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{refused} {call} raises {type(error).__name__}: {reason}") from error
    _check_network(network, image_shape, n_classes, f"{refused} {call}")
    ZOO[name] = entry


def _check_network(network: object, image_shape: ImageShape, n_classes: int, call: str) -> None:
    """Refuse what a registered factory returns unless it is the network that was asked for."""
    if not isinstance(network, Network):
        raise UsageError(f"{call} returns a {type(network).__name__}, not a torchcaps.Network")
    built = (network.image_shape, network.n_classes)
    if built != (image_shape, n_classes):
        raise UsageError(
            f"{call} returns a network for images {built[0]} of {built[1]} classes: pass both "
            "arguments on to Network.__init__"
        )


def count_parameters(name: str, *, definition: int | None = None) -> int:
    """Return the number of learned parameters of a network, without allocating them."""
    with torch.device("meta"):
        return build(name, definition=definition).n_parameters


def _make(name: str, factory: Callable[..., Network], shape: ImageShape, n_classes: int) -> Network:
    """Make a network; refuse one that does not fit into memory."""
    try:
        return factory(shape, n_classes)
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):
            raise
        raise InputError(
            f"{name} for {n_classes:,} classes and images {list(shape)} does not fit into memory: "
            "take smaller images or fewer classes"
        ) from None


def build(
    name: str,
    *,
    image_shape: ImageShape | None = None,
    n_classes: int | None = None,
    iterations: int | None = None,
    pretrained: bool = False,
    definition: int | None = None,
) -> Network:
    """Build a network by name.

    Args:
        name: ``paper/dataset-variant``; see :func:`list_models`.
        image_shape: another image shape than the network's default.
        n_classes: another number of classes. With ``pretrained``, every weight that still fits is
            kept; ``network.reinitialized`` and a line of the log name the others.
        iterations: another number of routing iterations, for a network that iterates.
        pretrained: load the weights that ship with the package, with the iterations they were
            trained with. A network's name takes its best weights, a recipe's name those of the
            recipe. The network is in training mode, as every new one: call ``eval()`` to use it.
        definition: an earlier definition of a network that was corrected; 1 is the first. Weight
            files record theirs, and weights that were trained before a correction keep their own.
    """
    if not isinstance(name, str):
        raise UsageError(f"a network's name is a string such as 'sabour2017/mnist', not {name!r}")
    if pretrained:
        return _pretrained(name, image_shape, n_classes, iterations, definition)
    if name not in ZOO:
        hint = suggest(name, ZOO, otherwise="torchcaps list names them all")
        raise UsageError(f"there is no network {name!r}: {hint}")
    entry = ZOO[name]
    latest = len(entry.factories)
    number = latest if definition is None else definition
    if type(number) is not int or not 1 <= number <= latest:
        raise UsageError(f"definition of {name!r} must be between 1 and {latest}, not {number!r}")
    requested = {"image_shape": image_shape, "n_classes": n_classes, "iterations": iterations}
    overrides: dict[str, Any] = {
        key: value for key, value in requested.items() if value is not None
    }
    if entry.earlier:
        overrides["definition"] = number
    shape = entry.image_shape if image_shape is None else image_shape
    classes = entry.n_classes if n_classes is None else n_classes
    network = _make(name, entry.factories[number - 1], shape, classes)
    _check_network(network, shape, classes, f"the factory of {name!r}")
    network.name = name
    network.overrides = overrides
    if iterations is not None:
        network.set_iterations(iterations)
    return network


def _pretrained(
    name: str,
    image_shape: ImageShape | None,
    n_classes: int | None,
    iterations: int | None,
    definition: int | None,
) -> Network:
    from torchcaps.models.weights.pretrained import load_shipped
    from torchcaps.models.weights.transfer import adapt

    network = load_shipped(name)
    trained = network.overrides.get("definition", 1)
    if definition not in (None, trained):
        raise UsageError(
            f"the shipped weights of {name!r} are for definition={trained}, not {definition}: "
            "leave definition out, or build without pretrained"
        )
    requested = {"image_shape": image_shape, "n_classes": n_classes}
    changes = {k: v for k, v in requested.items() if v is not None and v != getattr(network, k)}
    if changes:
        network = adapt(network, **changes)
    if iterations is not None:
        network.set_iterations(iterations)
    return network

"""Trained weights as the start of a network with other classes or images."""

import logging
from dataclasses import replace
from typing import Any

from torchcaps.errors import UsageError
from torchcaps.models.network import Network
from torchcaps.models.zoo import build
from torchcaps.preprocessing import Preprocessing
from torchcaps.preprocessing.steps import CenterCrop

LOG = logging.getLogger("torchcaps")


def adapt(source: Network, **changes: Any) -> Network:
    """Return a trained network for other classes or images, with every weight that fits.

    Args:
        source: a network built by name.
        changes: overrides of :func:`torchcaps.build`, such as ``n_classes=5``.
    """
    assert source.name is not None
    network = build(source.name, **{**source.overrides, **changes})
    transfer(source, network)
    LOG.warning(
        "%s keeps the trained weights that fit; %s", source.name, describe_reinitialized(network)
    )
    return network


def transfer(source: Network, network: Network) -> None:
    """Copy every tensor of the same name and shape; the others keep their random values.

    The network also takes over the preprocessing, and the class names if it has as many classes.
    Its attribute ``reinitialized`` names the tensors that were not copied.
    """
    if type(source) is not type(network):
        raise UsageError(
            f"weights of {source.name or type(source).__name__} do not fit "
            f"{network.name or type(network).__name__}: start from a network of the same class, "
            f"{type(network).__name__}"
        )
    expected = network.state_dict()
    fitting = {
        name: tensor
        for name, tensor in source.state_dict().items()
        if name in expected and expected[name].shape == tensor.shape
    }
    network.load_state_dict(fitting, strict=False)
    network.reinitialized = tuple(name for name in expected if name not in fitting)
    network.preprocessing = _preprocessing_for(network, source.preprocessing)
    if source.n_classes == network.n_classes:
        network.class_names = source.class_names


def describe_reinitialized(network: Network) -> str:
    """Name the tensors that were not copied, in words."""
    names = network.reinitialized
    if not names:
        return "no tensor starts from random values"
    verb = "starts" if len(names) == 1 else "start"
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return f"{shown} {verb} from random values"


def _preprocessing_for(network: Network, known: Preprocessing | None) -> Preprocessing | None:
    """Return the preprocessing for the network's image size; None where it does not fit."""
    if known is None or known.output_shape() == network.image_shape:
        return known
    channels, height, width = network.image_shape
    if known.output_shape()[0] != channels or any(type(s) is CenterCrop for s in known.steps):
        return None
    return replace(known, size=(height, width))

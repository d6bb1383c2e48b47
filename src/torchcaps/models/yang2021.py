"""The networks of Yang 2021: CapsNet with discriminative routing."""

from functools import partial

from torch import nn

from torchcaps.models.entry import CROP, MNIST, MULTI, Entry
from torchcaps.models.parts.backbones import ConvBackbone
from torchcaps.models.sabour2017 import CapsNet, cifar_capsnet
from torchcaps.routing import DiscriminativeRouting

LEAKY = partial(nn.LeakyReLU, negative_slope=0.2)
"""LeakyReLU with TensorFlow's slope, since the paper prints none."""


def networks() -> dict[str, Entry]:
    """Return the networks of Table II and MultiMNIST, with l1 and l2 penalties.

    Routing coefficients start at 1, and couplings at 1 over the number of classes. The vote weights
    therefore start ten times smaller than Sabour's. Primary capsules are not coupled by
    1 / n_types, because MNIST is then not learned before its learning rate has decayed. On CIFAR-10
    they are coupled, as in Sabour's network: without it, the first step of dynamic routing
    saturates the lengths of all classes. With l1 and l2, its definition 1 has PyTorch's LeakyReLU.
    The ``-tenth`` networks start from coefficients of 0.1 and Sabour's vote weights, which give the
    same first poses.
    """
    dynamic = partial(CapsNet, coupled=False)
    entries = {
        "mnist-dynamic": Entry(dynamic, MNIST),
        "fashion-mnist-dynamic": Entry(dynamic, MNIST),
        "cifar10-dynamic": Entry(cifar_capsnet, CROP),
        "multimnist-dynamic": Entry(partial(dynamic, n_objects=2), MULTI),
    }
    for penalty in ("l1", "l2"):
        routing = partial(DiscriminativeRouting, penalty=penalty)
        decoded = partial(dynamic, routing=routing, weight_std=0.01)
        bare = partial(decoded, reconstructs=False)
        for name in ("mnist", "fashion-mnist"):
            entries[f"{name}-{penalty}"] = Entry(decoded, MNIST)
            entries[f"{name}-{penalty}-plain"] = Entry(bare, MNIST)
        tenth = partial(dynamic, routing=partial(routing, initial=0.1), weight_std=0.1)
        entries[f"fashion-mnist-{penalty}-tenth"] = Entry(tenth, MNIST)
        cifar10 = partial(bare, n_types=64, padding=4, coupled=True)
        current, earlier = (
            partial(cifar10, backbone=partial(ConvBackbone, padding=4, nonlinearity=nonlinearity))
            for nonlinearity in (LEAKY, nn.LeakyReLU)
        )
        entries[f"cifar10-{penalty}"] = Entry(current, CROP, earlier=(earlier,))
        entries[f"multimnist-{penalty}"] = Entry(partial(decoded, n_objects=2), MULTI)
        entries[f"multimnist-{penalty}-plain"] = Entry(partial(bare, n_objects=2), MULTI)
    return entries

"""The data sets that load by name: one file per set, and their union."""

from torchcaps.data.description import Description
from torchcaps.data.sets.affnist import AFFNIST
from torchcaps.data.sets.affnist_style import AFFNIST_STYLE
from torchcaps.data.sets.cifar10 import CIFAR10
from torchcaps.data.sets.cifar100 import CIFAR100
from torchcaps.data.sets.diverse_multimnist import DIVERSE_MULTIMNIST
from torchcaps.data.sets.expanded_mnist import EXPANDED_MNIST
from torchcaps.data.sets.fashion_mnist import FASHION_MNIST
from torchcaps.data.sets.mnist import MNIST
from torchcaps.data.sets.multimnist import MULTIMNIST
from torchcaps.data.sets.smallnorb import SMALLNORB, SMALLNORB_MONO
from torchcaps.data.sets.strokes import STROKES, STROKES_OVERLAPPING
from torchcaps.data.sets.svhn import SVHN
from torchcaps.data.sets.waveforms import WAVEFORMS

SETS: dict[str, Description] = {
    description.name: description
    for description in (
        MNIST,
        FASHION_MNIST,
        CIFAR10,
        CIFAR100,
        SVHN,
        SMALLNORB,
        SMALLNORB_MONO,
        AFFNIST,
        MULTIMNIST,
        DIVERSE_MULTIMNIST,
        EXPANDED_MNIST,
        AFFNIST_STYLE,
        STROKES,
        STROKES_OVERLAPPING,
        WAVEFORMS,
    )
}
"""Every data set by name."""

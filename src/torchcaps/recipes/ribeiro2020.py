"""Ribeiro 2020: smallNORB, Fashion-MNIST, SVHN and CIFAR-10 with Variational Bayes routing.

Settings are those of the authors' code, at
https://github.com/fabio-deep/Variational-Capsule-Routing: Adam at 0.001, batch size 128, 300
epochs, cross-entropy of the activations, and the epoch of the best validation accuracy. That code
holds out a fifth of smallNORB, we a tenth of every set. It has no loader for Fashion-MNIST, which
follows its loader for MNIST, and none for CIFAR-10, which follows that for SVHN.

The numbers on smallNORB are those of the authors' README. We could not verify the others.
"""

from torchcaps.data import CenterCrop, Crop, Flip, Normalize, PadCrop, Standardize
from torchcaps.recipes.base import Published, Recipe
from torchcaps.recipes.losses import cross_entropy

UNVERIFIED = "the paper's number could not be verified"
NORMALIZE = Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
"""The statistics of CIFAR-10."""
SVHN = Normalize((0.4376821, 0.4437697, 0.47280442), (0.19803012, 0.20101562, 0.19703614))
"""The statistics of the authors' code."""


def published() -> list[Recipe]:
    """Return one row per data set, and the network of one layer from the authors' README."""
    smallnorb = _smallnorb()
    one_layer = smallnorb.variant(
        "ribeiro2020/smallnorb-one-layer",
        network="ribeiro2020/smallnorb-one-layer",
        published=Published("authors' README", 97.1, what="one capsule layer"),
        notes="Sixteen types of primary capsules, as in the authors' example.",
    )
    svhn = smallnorb.variant(
        "ribeiro2020/svhn",
        network="ribeiro2020/svhn",
        dataset="svhn",
        published=Published("no verified table", what=UNVERIFIED, is_row=False),
        resize=0,
        train_transforms=(PadCrop(4), SVHN),
        test_transforms=(SVHN,),
    )
    gray = Normalize((0.2860,), (0.3530,))
    fashion = svhn.variant(
        "ribeiro2020/fashion-mnist",
        network="ribeiro2020/fashion-mnist",
        dataset="fashion_mnist",
        notes="Images keep their 28x28 pixels; the authors' code pads those of MNIST to 32x32.",
        train_transforms=(PadCrop(4), gray),
        test_transforms=(gray,),
    )
    cifar = svhn.variant(
        "ribeiro2020/cifar10",
        network="ribeiro2020/cifar10",
        dataset="cifar10",
        notes="Augmentation as in the authors' loader for SVHN, and mirror images.",
        train_transforms=(PadCrop(4), Flip(), NORMALIZE),
        test_transforms=(NORMALIZE,),
    )
    return [smallnorb, one_layer, fashion, svhn, cifar]


def _smallnorb() -> Recipe:
    """Return the row that the others vary."""
    return Recipe(
        "ribeiro2020/smallnorb",
        "ribeiro2020/smallnorb",
        "smallnorb",
        Published("authors' README", 98.7, what="epoch of the best validation accuracy"),
        notes="The network of the authors' code, with types 8, 16 and 16.",
        iterations=3,
        resize=48,
        train_transforms=(Crop(32), Standardize()),
        test_transforms=(CenterCrop(32), Standardize()),
        loss=cross_entropy,
        lr=1e-3,
        epochs=300,
        batch_size=128,
    )

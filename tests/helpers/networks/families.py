"""Small networks of every family, for what must work with all of them."""

from collections.abc import Callable
from functools import cache, partial

import torch
from torch import nn

import torchcaps as tc
from torchcaps.analysis import Subject
from torchcaps.data import Strokes
from torchcaps.models.parts.backbones import ConvBackbone

SHAPE = (1, 28, 28)
PAIR = (1, 36, 36)

narrow = partial(ConvBackbone, out_channels=8)
small = partial(tc.CapsNet, backbone=narrow, n_types=3)
coarse = partial(ConvBackbone, out_channels=8, kernel_size=5, stride=2, padding=2)

FAMILIES: dict[str, Callable[[], tc.Network]] = {
    "dynamic": lambda: small(SHAPE, 10),
    "discriminative": lambda: small(SHAPE, 10, routing=tc.DiscriminativeRouting, weight_std=0.01),
    "em": lambda: tc.EMCapsNet(SHAPE, 10, backbone=coarse, widths=(3, 3, 3), iterations=2),
    "inverted": lambda: tc.AttentionCapsNet(SHAPE, 10, backbone=coarse, n_types=3, hidden=(5,)),
    "sequential": lambda: tc.AttentionCapsNet(
        SHAPE, 10, backbone=coarse, n_types=3, concurrent=False
    ),
    "attention": lambda: tc.ARCapsNet(SHAPE, 10, n_layers=2, d=8, n_channels=3, d_primary=4),
    "pairwise": lambda: tc.ResCapsNet(
        SHAPE, 10, blocks=(1, 1, 1), hidden=(6,), decoder=tc.DeconvolutionDecoder
    ),
    "plain": lambda: tc.Classifier(
        SHAPE,
        10,
        nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(1152, 32),
            nn.ReLU(),
            nn.Linear(32, 10),
        ),
    ),
}
CAPSULES = [name for name in FAMILIES if name != "plain"]
DECODED = ["dynamic", "discriminative", "attention", "pairwise"]
ITERATED = ["dynamic", "em", "inverted", "sequential"]


@cache
def family(name: str) -> tc.Network:
    """An untrained network, the same in every test; do not train it."""
    torch.manual_seed(0)
    return FAMILIES[name]().eval()


@cache
def overlapping(name: str) -> tc.Network:
    """One that takes two objects apart."""
    torch.manual_seed(0)
    networks: dict[str, Callable[[], tc.Network]] = {
        "dynamic": lambda: small(PAIR, 10, n_objects=2),
        "pairwise": lambda: tc.ResCapsNet(
            PAIR, 10, blocks=(1, 1, 1), hidden=(), decoder=tc.DeconvolutionDecoder, n_objects=2
        ),
    }
    return networks[name]().eval()


def subject(name: str, *, pairs: bool = False) -> Subject:
    """A network with strokes to look at."""
    if pairs:
        strokes = Strokes(200, size=36, overlapping=True, split="test")
        return Subject(name, overlapping(name), strokes, "strokes_overlapping")
    return Subject(name, family(name), Strokes(200, split="test"), "strokes")

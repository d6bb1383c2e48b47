"""Capsule layers: windows, votes, routing, parents; and decoders."""

from torchcaps.layers.conv import ConvCapsules, ConvTransformCapsules
from torchcaps.layers.decoders import Decoder, DeconvolutionDecoder, FullyConnectedDecoder
from torchcaps.layers.head import CapsuleHead
from torchcaps.layers.linear import ClassCapsules, LinearCapsules
from torchcaps.layers.primary import PoseNorm, PrimaryCapsules, RectifiedActivation, Squash
from torchcaps.layers.votes import VoteNorm

__all__ = [
    "CapsuleHead",
    "ClassCapsules",
    "ConvCapsules",
    "ConvTransformCapsules",
    "Decoder",
    "DeconvolutionDecoder",
    "FullyConnectedDecoder",
    "LinearCapsules",
    "PoseNorm",
    "PrimaryCapsules",
    "RectifiedActivation",
    "Squash",
    "VoteNorm",
]

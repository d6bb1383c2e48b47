"""Capsule layers and decoders."""

from torchcaps.layers.base import CapsuleLayer as CapsuleLayer
from torchcaps.layers.conv import (
    ConvCapsules as ConvCapsules,
    ConvTransformCapsules as ConvTransformCapsules,
)
from torchcaps.layers.decoders import (
    Decoder as Decoder,
    DeconvolutionDecoder as DeconvolutionDecoder,
    FullyConnectedDecoder as FullyConnectedDecoder,
)
from torchcaps.layers.head import CapsuleHead as CapsuleHead
from torchcaps.layers.linear import ClassCapsules as ClassCapsules, LinearCapsules as LinearCapsules
from torchcaps.layers.primary import (
    PoseNorm as PoseNorm,
    PrimaryCapsules as PrimaryCapsules,
    RectifiedActivation as RectifiedActivation,
    Squash as Squash,
)
from torchcaps.layers.votes import VoteNorm as VoteNorm

"""The networks of Zhao 2020: ResNet-v2 blocks under capsules, with three routings."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import final

from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output
from torchcaps.errors import InputError
from torchcaps.functional import lengths
from torchcaps.layers import (
    Decoder,
    DeconvolutionDecoder,
    LinearCapsules,
    PrimaryCapsules,
    VoteNorm,
)
from torchcaps.layers.votes import VoteNormFactory, keras_std
from torchcaps.models.entry import CIFAR, MNIST, MULTI, WIDE, Entry
from torchcaps.models.network import ImageShape, Network
from torchcaps.models.parts.backbones import (
    Backbone,
    ConvBackbone,
    ImageConv2d,
    conv3x3,
    keras_norm,
)
from torchcaps.models.sabour2017 import plain_capsnet
from torchcaps.routing import (
    DynamicRouting,
    EMRouting,
    PairwiseRouting,
    RoutingFactory,
    Sizes,
)

INNER = partial(PairwiseRouting, unit=False)
"""Section 3.3: a capsule layer hands s_j to the next one, not the unit pose."""


@final
class ResCapsNet(Network):
    """ResNet-v2 blocks, primary capsules and linear capsule layers with 4x4 poses (Figure 3).

    Scores are the activations of the class capsules: agreement, or length with dynamic routing.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: number of classes.
        blocks: residual blocks of each of the three stages.
        hidden: sizes of the capsule layers before the class capsules.
        routing: routing of the class capsules.
        inner_routing: routing of the layers below.
        vote_norm: batch normalization of the votes.
        glorot: initialize the vote weights as the authors' code does, by Keras' rule, which counts
            all children and parents of a layer as inputs and outputs. The votes are then so short
            that the epsilon of their normalization keeps them short. With longer votes, dynamic
            routing starts with every class at a length of 1.
        decoder: decoder class, or None.
        n_objects: objects in one image; evaluation decodes as many classes.
        corrected: see :class:`ResNetV2Backbone`; also starts the convolution of the primary
            capsules by He's rule, as the authors' code does. With EM routing, children are as
            active as their squashed poses are long, also as in that code; False learns a second
            convolution for the activations.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        n_classes: int,
        *,
        blocks: tuple[int, int, int] = (8, 8, 8),
        hidden: Sequence[int] = (32, 16),
        routing: RoutingFactory = PairwiseRouting,
        inner_routing: RoutingFactory = INNER,
        vote_norm: VoteNormFactory = VoteNorm,
        glorot: bool = False,
        decoder: Callable[[int, int, ImageShape], Decoder] | None = None,
        n_objects: int = 1,
        corrected: bool = True,
    ) -> None:
        super().__init__(image_shape, n_classes)
        if n_objects > n_classes:
            raise InputError(f"an image cannot show {n_objects} of {n_classes} classes")
        self.backbone = ResNetV2Backbone(image_shape[0], blocks, corrected=corrected)
        height, width = self.backbone.output_size(image_shape[1], image_shape[2])
        n_children = ((height + 1) // 2) * ((width + 1) // 2) * 4

        def linear(n_children: int, n_parents: int, routing: RoutingFactory) -> LinearCapsules:
            std = keras_std(n_children, n_parents, 4, 4) if glorot else None
            make = partial(LinearCapsules, matrix=True, vote_norm=vote_norm, weight_std=std)
            return make(n_children, n_parents, 16, 16, routing=routing)

        self.layers = nn.ModuleList()
        for n_parents in hidden:
            self.layers.append(linear(n_children, n_parents, inner_routing))
            n_children = n_parents
        self.classes = linear(n_children, n_classes, routing)
        self.primary = PrimaryCapsules(
            64,
            4,
            16,
            kernel_size=5,
            stride=2,
            padding=2,
            bias=False,
            batch_norm=True,
            activations=not corrected and self.classes.routing.child_activations != "ignored",
        )
        if corrected:
            nn.init.kaiming_normal_(self.primary.pose_conv.weight)
        self.decoder = decoder(n_classes, 16, image_shape) if decoder else None
        self.n_objects = n_objects

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Return activations, poses and, with a decoder, reconstructions of the classes."""
        routed = self.primary(self.backbone(self.checked(images)))
        if routed.activations is None and self.classes.routing.child_activations != "ignored":
            routed = Capsules(routed.poses, lengths(routed.poses))
        all_couplings = []
        for layer in (*self.layers, self.classes):
            routed = layer(routed)
            all_couplings.append(routed.couplings)
        scores = routed.activations
        reconstruction = self.reconstruct(
            self.decoder, routed.poses, scores, targets, self.n_objects
        )
        returned = tuple(all_couplings) if couplings else ()
        return Output(scores, Capsules(routed.poses, scores), returned, reconstruction)


@final
class PreactivationBlock(nn.Module):
    """The residual block of He 2016b: norm, ReLU, conv, norm, ReLU, conv, add.

    Args:
        in_channels: channels of the features.
        out_channels: channels of the sum.
        stride: stride of the first convolution and of the shortcut.
        activated: the features are already normalized and rectified.
    """

    def __init__(
        self, in_channels: int, out_channels: int, stride: int = 1, *, activated: bool = False
    ) -> None:
        super().__init__()
        self.first = nn.Sequential()
        if not activated:
            self.first = nn.Sequential(keras_norm(in_channels), nn.ReLU())
        self.residual = nn.Sequential(
            conv3x3(in_channels, out_channels, stride),
            keras_norm(out_channels),
            nn.ReLU(),
            conv3x3(out_channels, out_channels),
        )
        self.shortcut: nn.Module | None = None
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """Add the residual; a shortcut that changes the shape starts after the first ReLU."""
        active: Tensor = self.first(features)
        skipped = features if self.shortcut is None else self.shortcut(active)
        total: Tensor = self.residual(active) + skipped
        return total


@final
class ResNetV2Backbone(Backbone):
    """The ResNet-v2 backbone: three stages of 16, 32 and 64 channels.

    The first convolution is normalized and rectified before the first block splits its two paths,
    and so is the sum of the last block (He 2016b, section 4). Convolutions start by He's rule, as
    in the authors' code.

    Args:
        in_channels: channels of the images.
        blocks: residual blocks of each stage.
        corrected: False builds the backbone of the first weights that shipped. Its first block
            normalizes and rectifies a second time, and its last sum is neither normalized nor
            rectified. Its convolutions have PyTorch's initial weights.
    """

    out_channels = 64

    def __init__(
        self,
        in_channels: int,
        blocks: tuple[int, int, int] = (8, 8, 8),
        *,
        corrected: bool = True,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            ImageConv2d(in_channels, 16, 3, padding=1, bias=False),
            keras_norm(16),
            nn.ReLU(),
        ]
        width = 16
        for stage, count in enumerate(blocks):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                activated = corrected and stage == block == 0
                layers.append(PreactivationBlock(width, 16 * 2**stage, stride, activated=activated))
                width = 16 * 2**stage
        if corrected:
            layers += [keras_norm(width), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        for module in self.modules() if corrected else ():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, images: Tensor) -> Tensor:
        """Return the features of images."""
        features: Tensor = self.layers(images)
        return features

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Return a quarter of each side, rounded up twice."""
        return (height + 3) // 4, (width + 3) // 4


def networks() -> dict[str, Entry]:
    """Return the networks of sections 4.1 to 4.4, with pairwise, dynamic and EM routing.

    EM routing has 2 iterations, as in the code that the authors compare with. Definition 2 of its
    networks has the right backbone, and neither scales nor start of that code.
    """
    backbone = partial(ConvBackbone, out_channels=64)
    light = partial(plain_capsnet, backbone=backbone, n_types=8, coupled=False)
    agreement = partial(light, routing=partial(PairwiseRouting, normalise=False))
    dynamic = partial(light, routing=DynamicRouting)
    shallow = partial(ResCapsNet, blocks=(1, 1, 1), hidden=())
    decoded = partial(shallow, decoder=DeconvolutionDecoder)
    capsule_norm = partial(VoteNorm, per="capsule")
    overlapping = partial(
        ResCapsNet, blocks=(2, 2, 2), hidden=(), decoder=DeconvolutionDecoder, n_objects=2
    )
    published = {
        "cifar10": Entry(ResCapsNet, CIFAR, paper="less than 1M"),
        "fashion-mnist": Entry(ResCapsNet, MNIST, paper="less than 1M"),
        "svhn": Entry(ResCapsNet, CIFAR, paper="less than 1M"),
        "affnist": Entry(decoded, WIDE, paper="196K + 199K"),
        "multimnist": Entry(overlapping, MULTI, paper="457K"),
        "smallnorb": Entry(partial(shallow, vote_norm=capsule_norm), (1, 32, 32), 5),
    }
    entries: dict[str, Entry] = {}
    for name in ("cifar10", "fashion-mnist", "svhn"):
        shape = published[name].image_shape
        n_children = 8 * ((shape[1] - 15) // 2) ** 2
        # Keras' Glorot rule for a tensor [i d (j e)], whose first axis it takes for positions
        std = math.sqrt(2 / (n_children * (8 + 10 * 16)))
        entries[f"{name}-light"] = Entry(partial(agreement, weight_std=std), shape)
        entries[f"{name}-light-dynamic"] = Entry(partial(dynamic, weight_std=std), shape)
    for name, entry in published.items():
        entries[name] = _corrected(entry)
        dynamic_entry, unscaled, scaled = (
            _corrected(replace(entry, make=_routed(entry, routing), paper=""))
            for routing in (DynamicRouting, partial(EMRouting, iterations=2), scaled_em)
        )
        entries[f"{name}-dynamic"] = dynamic_entry
        entries[f"{name}-em"] = replace(scaled, earlier=unscaled.factories)
    return entries


def scaled_em(sizes: Sizes) -> EMRouting:
    """Build EM routing with the scales and the start of the code that the authors compare with.

    The cost does not depend on the number of children (Gritzman 2019), and beta_a is a thousand
    times what is learned. Without these scales, activations of inner layers stay at one half.
    """
    cost_scale = 100 * sizes.n_parents / sizes.n_children
    routing = EMRouting(sizes, iterations=2, cost_scale=cost_scale, beta_scale=1000.0)
    nn.init.trunc_normal_(routing.beta_a, mean=-1.0, std=0.5)
    return routing


def _routed(entry: Entry, routing: RoutingFactory) -> Callable[..., Network]:
    """Return the factory of an entry's network with another routing in all layers."""
    return partial(entry.make, routing=routing, inner_routing=routing, glorot=True)


def _corrected(entry: Entry) -> Entry:
    """Return the entry with its network before the backbone was corrected as definition 1.

    MultiMNIST then had the three blocks of the authors' code, which are more than the paper's 457K.
    """
    earlier = partial(entry.make, corrected=False)
    if entry.image_shape == MULTI:
        earlier = partial(earlier, blocks=(3, 3, 3))
    return replace(entry, earlier=(earlier,))

"""Primary capsules: features of a backbone, grouped into the first capsules."""

from collections.abc import Callable
from functools import partial
from typing import Any, Self, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcaps import kernels
from torchcaps.capsules import Capsules
from torchcaps.checks import check_sizes
from torchcaps.errors import InputError
from torchcaps.layers.windows import pair
from torchcaps.routing.activation import CapsuleActivation
from torchcaps.routing.base import Primary, Routing
from torchcaps.tensors import output_size

Nonlinearity = Callable[[int, int], nn.Module]
"""Called with the number of types and the size of a pose; maps poses ``[... i d]``."""


@final
class Squash(nn.Module):
    """The squashing nonlinearity, applied to every pose (Sabour 2017, Eq. 1)."""

    def __init__(self, n_types: int, d: int) -> None:
        super().__init__()

    def forward(self, poses: Tensor) -> Tensor:
        """Squash over the last axis."""
        return kernels.squash_lowered(poses)


@final
class PoseNorm(nn.LayerNorm):
    """LayerNorm over every pose, its weights shared by all types (Tsai 2020, Procedure 2).

    A pose of one number is left as it is: LayerNorm would make it constant.
    """

    def __init__(self, n_types: int, d: int) -> None:
        super().__init__(d, elementwise_affine=d > 1)

    def forward(self, poses: Tensor) -> Tensor:
        """Normalize over the last axis."""
        if poses.shape[-1] == 1:
            return poses
        return kernels.pose_norm(self, poses, plain=super().forward)


@final
class RectifiedActivation(nn.Module):
    """ReLU, then the capsule activation (Choi 2019, Eq. 3 and 4)."""

    def __init__(self, n_types: int, d: int) -> None:
        super().__init__()
        self.activation = CapsuleActivation(n_types, d)

    def forward(self, poses: Tensor) -> Tensor:
        """Rectify, then map every pose by the weights of its type."""
        activated: Tensor = self.activation(poses.relu())
        return activated


NONLINEARITIES: dict[Primary, Nonlinearity | None] = {
    "squash": Squash,
    "norm": PoseNorm,
    "rectify": RectifiedActivation,
    "none": None,
}
"""The nonlinearity that a routing names as the one that suits it."""


def first_weights(conv: nn.Conv2d, std: float) -> None:
    """Return normal weights cut at two standard deviations, as in the authors' code of Sabour."""
    nn.init.trunc_normal_(conv.weight, std=std, a=-2 * std, b=2 * std)
    if conv.bias is not None:
        nn.init.constant_(conv.bias, 0.1)


def _built(nonlinearity: Nonlinearity, n_types: int, d: int) -> nn.Module:
    """Build the nonlinearity, or say what it should be."""
    try:
        return nonlinearity(n_types, d)
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(
            "nonlinearity must be Squash, PoseNorm, RectifiedActivation or another class built "
            f"from the number of types and the pose size, not {nonlinearity!r}"
        ) from error


class PoseConv2d(nn.Conv2d):
    """A convolution into the entries of poses."""

    def forward(self, features: Tensor) -> Tensor:
        """Return the entries of all poses as channels."""
        return self.convolved(features, self.weight, self.bias)

    def convolved(self, features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Convolve with this weight and bias, by the fastest implementation that can run."""
        sides = int(self.padding[0]), int(self.padding[1])
        stride = self.stride[0], self.stride[1]
        if self._has_few_places(features):
            return self._by_patches(features, weight, bias)
        return kernels.convolve(features, weight, bias, stride, sides)

    def _has_few_places(self, features: Tensor) -> bool:
        """Return whether a matmul of patches is faster than oneDNN.

        oneDNN reorders the weights at every call, which takes longer than the convolution where
        large kernels meet few places. Compiled code would be tied to a range of batch sizes.
        """
        if torch.compiler.is_compiling() or torch.is_grad_enabled() or min(self.kernel_size) < 5:
            return False
        device = features.device.type
        if device != "cpu" or features.dtype != torch.float32 or torch.is_autocast_enabled(device):
            return False
        if min(self.stride) < 2 or self.groups > 1 or self.dilation != (1, 1):
            return False
        height, width = _places(self, features)
        return 2 * len(features) * height * width <= self.out_channels

    def _by_patches(self, features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        (kh, kw), (sh, sw) = self.kernel_size, self.stride
        ph, pw = int(self.padding[0]), int(self.padding[1])
        height, width = _places(self, features)
        patches = F.pad(features, (pw, pw, ph, ph)) if ph or pw else features
        patches = patches.unfold(2, kh, sh).unfold(3, kw, sw).permute(0, 2, 3, 1, 4, 5)
        out = F.linear(patches.flatten(3), weight.flatten(1), bias)
        return out.view(-1, height, width, self.out_channels).permute(0, 3, 1, 2)


def _places(conv: nn.Conv2d, features: Tensor) -> tuple[int, int]:
    """Return height and width of a convolution's output."""
    sides = (features.shape[2], features.shape[3])
    kernel_size = (conv.kernel_size[0], conv.kernel_size[1])
    padding = (int(conv.padding[0]), int(conv.padding[1]))
    return output_size(sides, kernel_size, (conv.stride[0], conv.stride[1]), padding)


@final
class CoupledConv2d(PoseConv2d):
    """A convolution into n types of capsules to which every input is coupled by 1/n.

    If ``leaky``, by 1/(n+1): what is left goes to none of them.

    Adam moves every weight by about its learning rate, however many inputs a channel has; with the
    20,736 of CapsNet and without the coupling, the first step takes lengths from 0.1 to 0.9.
    """

    def __init__(self, *args: Any, n_types: int, leaky: bool = False, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.share = 1 / (n_types + leaky)
        first_weights(self, std=0.1)

    def forward(self, features: Tensor) -> Tensor:
        """Return the entries of all poses as channels.

        Inference couples the output, which is smaller than the weight.
        """
        if self.training:
            return self.convolved(features, self.weight * self.share, self.bias)
        bias = None if self.bias is None else self.bias / self.share
        return self.share * self.convolved(features, self.weight, bias)


@final
class PrimaryCapsules(nn.Module):
    """A convolution whose channels are grouped into capsules, ``[b c h w] -> [b h w i d]``.

    Type i has channels i d to i d + d - 1.

    Args:
        in_channels: channels of the feature map.
        n_types: capsule types i at every position.
        d: size of a pose.
        kernel_size: kernel size of the convolution.
        stride: stride of the convolution.
        padding: zeros around the feature map.
        bias: add a bias to the convolution.
        batch_norm: normalize the channels before they are grouped (Zhao 2020, with the defaults of
            Keras, in which the authors wrote it).
        nonlinearity: :class:`Squash` (Sabour, Zhao, Yang), :class:`PoseNorm` (Tsai),
            :class:`RectifiedActivation` (Choi), or None for poses as they are (EM).
        activations: give every capsule an activation too: the logistic of a second convolution
            (EM). Without, ``activations`` is None.
        coupled: divide the convolution, but for its bias, by the number of types, as one pass of
            routing with equal couplings does (the authors' code of Sabour 2017). Weights then start
            with a standard deviation of 0.1, as there, and biases at 0.1.
        leaky: with ``coupled``, divide by one more: an equal share goes to none of the types.

    Example:
        >>> primary = tc.PrimaryCapsules(256, 32, 8, kernel_size=9, stride=2)
        >>> primary(torch.rand(2, 256, 20, 20)).poses.shape
        torch.Size([2, 6, 6, 32, 8])
    """

    def __init__(
        self,
        in_channels: int,
        n_types: int,
        d: int,
        *,
        kernel_size: int | tuple[int, int] = 1,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        bias: bool = True,
        batch_norm: bool = False,
        nonlinearity: Nonlinearity | None = Squash,
        activations: bool = False,
        coupled: bool = False,
        leaky: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(in_channels=in_channels, n_types=n_types, d=d)
        self.kernel_size = pair("kernel_size", kernel_size, least=1)
        self.stride = pair("stride", stride, least=1)
        self.padding = pair("padding", padding, least=0)
        self.n_types = n_types
        self.d = d
        coupled_conv = partial(CoupledConv2d, n_types=n_types, leaky=leaky)
        make = coupled_conv if coupled else PoseConv2d
        self.pose_conv = self._convolution(make, in_channels, n_types * d, bias)
        self.norm: nn.Module = nn.Identity()
        if batch_norm:
            self.norm = nn.BatchNorm2d(n_types * d, eps=1e-3, momentum=0.01)
        self.nonlinearity = _built(nonlinearity, n_types, d) if nonlinearity else nn.Identity()
        self.activation_conv = (
            self._convolution(PoseConv2d, in_channels, n_types, bias) if activations else None
        )

    @classmethod
    def below(
        cls,
        routing: Routing,
        in_channels: int,
        n_types: int,
        d: int,
        *,
        kernel_size: int | tuple[int, int] = 1,
        stride: int | tuple[int, int] = 1,
    ) -> Self:
        """Build primary capsules with the nonlinearity and activations that suit a routing."""
        return cls(
            in_channels,
            n_types,
            d,
            kernel_size=kernel_size,
            stride=stride,
            nonlinearity=NONLINEARITIES[routing.primary],
            activations=routing.child_activations != "ignored",
        )

    def _convolution(
        self, make: Callable[..., PoseConv2d], in_channels: int, out_channels: int, bias: bool
    ) -> PoseConv2d:
        return make(
            in_channels, out_channels, self.kernel_size, self.stride, self.padding, bias=bias
        )

    def forward(self, features: Tensor) -> Capsules:
        """Return capsules on the grid of the convolution's output."""
        if features.dim() != 4 or features.shape[1] != self.pose_conv.in_channels:
            raise ValueError(
                f"PrimaryCapsules takes features [b {self.pose_conv.in_channels} h w], "
                f"not {list(features.shape)}"
            )
        (kh, kw), (ph, pw) = self.kernel_size, self.padding
        if features.shape[2] + 2 * ph < kh or features.shape[3] + 2 * pw < kw:
            raise InputError(
                f"a {kh}x{kw} kernel does not fit features of "
                f"{features.shape[2]}x{features.shape[3]}"
            )
        poses = self.norm(self.pose_conv(features)).unflatten(1, (self.n_types, self.d))
        poses = self.nonlinearity(poses.permute(0, 3, 4, 1, 2))
        if self.activation_conv is None:
            return Capsules(poses)
        return Capsules(poses, self.activation_conv(features).permute(0, 2, 3, 1).sigmoid())

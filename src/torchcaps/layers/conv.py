"""Capsule layers that slide over a grid of capsules, sharing weights over positions."""

from abc import abstractmethod
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcaps.capsules import Capsules, Routed
from torchcaps.layers.base import CapsuleLayer
from torchcaps.layers.votes import VoteNormFactory, vote_weight
from torchcaps.layers.windows import grid_of, pair, same_child
from torchcaps.routing import defaults
from torchcaps.routing.base import Competition, RoutingFactory, Sizes, build_routing
from torchcaps.tensors import Pair, check_fit, output_size, windows
from torchcaps.votes import Votes, Window


class SlidingCapsules(CapsuleLayer):
    """A layer that folds positions into the batch to route, and unfolds them afterwards.

    Args:
        n_types: child types i at every position.
        d_child: size of a child's pose.
        kernel_size: height and width of a window, or one number for both.
        stride: step from one window to the next.
        padding: zeros around the grid.
    """

    def __init__(
        self,
        n_types: int,
        d_child: int,
        kernel_size: int | Pair,
        stride: int | Pair,
        padding: int | Pair,
    ) -> None:
        super().__init__()
        self.kernel_size = pair("kernel_size", kernel_size, least=1)
        self.stride = pair("stride", stride, least=1)
        self.padding = pair("padding", padding, least=0)
        self.n_types = n_types
        self.d_child = d_child

    @abstractmethod
    def child_activations(self, children: Capsules | Routed) -> Tensor | None:
        """Return the activations ``[(b h' w') i]`` of every window's children, if any."""

    def forward(
        self,
        children: Capsules | Routed,
        parents: Tensor | None = None,
        votes: Votes | Tensor | None = None,
    ) -> Routed:
        """Return the parents of every window.

        Args:
            children: capsules below.
            parents: poses of the parents after a previous iteration, if there was one.
            votes: the votes of all windows, if they have been prepared before.
        """
        size = self.output_size(self.grid(children))
        if parents is not None:
            if parents.shape[:3] != size:
                raise ValueError(f"parents {list(parents.shape)} must start with {list(size)}")
            parents = parents.flatten(0, 2)
        routed = self.route(children, self.child_activations(children), parents, votes)
        return Routed(*(tensor.reshape(*size, *tensor.shape[1:]) for tensor in routed))

    def extra_repr(self) -> str:
        """Return the geometry of the windows."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"

    def output_size(self, poses: Tensor) -> tuple[int, int, int]:
        """Return batch size, height and width of the parents' grid."""
        sides = (poses.shape[1], poses.shape[2])
        height, width = output_size(sides, self.kernel_size, self.stride, self.padding)
        return poses.shape[0], height, width

    def grid(self, children: Capsules | Routed) -> Tensor:
        """Return child poses ``[b h w i d]``; refuse a grid the layer was not built for."""
        poses = grid_of(children, self.n_types, self.d_child, type(self).__name__)
        check_fit(poses, self.kernel_size, self.padding)
        return poses


@final
class ConvCapsules(SlidingCapsules):
    """A convolution of capsules: ``[b h w i d] -> [b h' w' j e]``.

    A parent's children are all capsules of its window, each with a weight of its own; routing
    compares the votes of a window. Positions fold into the batch and window offsets into the
    children, so couplings come back as ``[b h' w' (k i) j]``.

    Args:
        n_types: child types i at every position.
        n_parents: parent types j at every position.
        d_child: size of a child's pose.
        d_parent: size of a parent's pose.
        kernel_size: height and width of a window, or one number for both.
        stride: step from one window to the next.
        padding: rings of absent capsules around the grid: pose zero and, if there are activations,
            activation zero.
        routing: a routing class, or a partial of one.
        matrix: read poses as square matrices (q x q weights) instead of vectors (d x e weights).
        competition: "window": the parents of one window compete for its children; "image": all
            parents of a child do, wherever they are (EM routing only). None takes the routing's.
        weight_std: standard deviation of the weights at the start; see :func:`vote_weight`.
        vote_norm: :class:`VoteNorm` normalizes votes over batch and positions; None leaves them. It
            gives the zero poses of the padding a vote too.
    """

    def __init__(
        self,
        n_types: int,
        n_parents: int,
        d_child: int,
        d_parent: int,
        *,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair = 0,
        routing: RoutingFactory = defaults.CONVOLUTION,
        matrix: bool = False,
        competition: Competition | None = None,
        weight_std: float | None = None,
        vote_norm: VoteNormFactory | None = None,
    ) -> None:
        super().__init__(n_types, d_child, kernel_size, stride, padding)
        n_children = self.kernel_size[0] * self.kernel_size[1] * n_types
        self.weight = vote_weight(
            n_children, n_parents, d_child, d_parent, matrix=matrix, std=weight_std
        )
        self.vote_norm = vote_norm(n_children, n_parents, d_parent) if vote_norm else None
        self.routing = build_routing(routing, Sizes(n_children, n_parents, d_child, d_parent))
        if competition not in ("window", "image", None):
            raise ValueError(f'competition must be "window" or "image", not {competition!r}')
        if competition == "image" and self.routing.competition != "image":
            raise ValueError(
                f'competition="image" is not for {type(self.routing).__name__}, which compares '
                'the votes of one window: use competition="window"'
            )
        self.competition = competition or self.routing.competition

    def votes(self, children: Capsules | Routed) -> Votes:
        """Return the votes of every window's children; nothing is cast."""
        poses = self.grid(children)
        child = None
        if self.competition == "image":
            size = self.output_size(children.poses)
            child = same_child(size, self.kernel_size, self.stride, self.n_types, poses.device)
        window = Window(self.kernel_size, self.stride, self.padding)
        votes = Votes(poses, self.weight, child=child, window=window)
        return votes if self.vote_norm is None else self.vote_norm(votes)

    def child_activations(self, children: Capsules | Routed) -> Tensor | None:
        """Return the activations of every window's children, zero for the padding."""
        if children.activations is None:
            return None
        grid = windows(children.activations, self.kernel_size, self.stride, self.padding)
        return grid.flatten(3).flatten(0, 2)


@final
class ConvTransformCapsules(SlidingCapsules):
    """The convolutional transform of Choi 2019: ``[b h w i d] -> [b h' w' j e]``.

    The vote of child type i for parent type j is a convolution over the poses of type i alone
    (Eq. 5), so a parent has as many children as there are types, and routing compares them at one
    position. A kernel of the grid's size is the paper's fully conv caps layer. Couplings come back
    as ``[b h' w' i j]``.

    Args:
        n_types: child types i.
        n_parents: parent types j.
        d_child: size of a child's pose.
        d_parent: size of a parent's pose.
        kernel_size: kernel size of the convolution.
        stride: stride of the convolution.
        padding: zeros around the grid.
        routing: a routing class, or a partial of one.
        bias: add a bias per child type, parent type and entry.
        weight_std: standard deviation of the weights at the start; None takes
            1 / sqrt(kernel area x d_child), which keeps the variance of the poses.
    """

    def __init__(
        self,
        n_types: int,
        n_parents: int,
        d_child: int,
        d_parent: int,
        *,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair = 0,
        routing: RoutingFactory = defaults.CONVOLUTIONAL_TRANSFORM,
        bias: bool = True,
        weight_std: float | None = None,
    ) -> None:
        super().__init__(n_types, d_child, kernel_size, stride, padding)
        d_window = self.kernel_size[0] * self.kernel_size[1] * d_child
        std = d_window**-0.5 if weight_std is None else weight_std
        self.weight = vote_weight(n_types, n_parents, d_window, d_parent, matrix=False, std=std)
        self.bias = nn.Parameter(torch.zeros(n_types, n_parents, d_parent)) if bias else None
        self.routing = build_routing(routing, Sizes(n_types, n_parents, d_window, d_parent))
        if self.routing.child_activations == "required":
            raise ValueError(
                f"{type(self.routing).__name__} weighs children by their activations, and a vote "
                "of ConvTransformCapsules comes from a neighborhood, which has none: use "
                "ConvCapsules"
            )

    def votes(self, children: Capsules | Routed) -> Votes:
        """Return the votes of the children at every position; nothing is cast."""
        grid = windows(self.grid(children), self.kernel_size, self.stride, self.padding)
        poses = grid.transpose(3, 4).flatten(4).flatten(0, 2)
        return Votes(poses, self.weight, bias=self.bias)  # poses [(b h' w') i (k d)]

    def route(
        self,
        children: Capsules | Routed,
        activations: Tensor | None,
        parents: Tensor | None = None,
        votes: Votes | Tensor | None = None,
    ) -> Routed:
        """Route the votes of the children, cast by a convolution where that is faster.

        It is on a CPU, but for one image or one window, unless a kernel or the poses need the
        windows. For few groups of channels, cuDNN slices its tensors into groups.
        """
        casts = self.routing.kernel is None and not self.routing.reads_poses
        casts = casts and children.poses.device.type == "cpu"
        batch, *sides = self.output_size(children.poses)
        if votes is None and casts and batch > 1 and sides != [1, 1]:
            votes = self.convolved(children)
        return super().route(children, activations, parents, votes)

    def convolved(self, children: Capsules | Routed) -> Tensor:
        """Return dense votes ``[(b h' w') i j e]`` by one convolution, grouped by child types."""
        poses = self.grid(children)
        i, j, _, e = self.weight.shape
        kernel = self.weight.unflatten(2, (*self.kernel_size, self.d_child))
        kernel = kernel.permute(0, 1, 5, 4, 2, 3).flatten(0, 2)  # [(i j e) d kh kw]
        bias = None if self.bias is None else self.bias.flatten()
        grid = poses.flatten(3).permute(0, 3, 1, 2)  # [b (i d) h w]
        votes = F.conv2d(grid, kernel, bias, self.stride, self.padding, groups=i)
        return votes.permute(0, 2, 3, 1).reshape(-1, i, j, e)

    def child_activations(self, children: Capsules | Routed) -> None:
        """Return None: a vote comes from a neighborhood, which has no activation of its own."""

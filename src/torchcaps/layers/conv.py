"""Capsule layers that slide over a grid of capsules, sharing weights over positions."""

from abc import ABC, abstractmethod
from typing import Literal, final

import torch
from torch import Tensor, nn

from torchcaps.capsules import Capsules, Routed, Votes, Window
from torchcaps.layers.votes import VoteNormFactory, vote_weight
from torchcaps.layers.windows import Pair, check_fit, grid_of, pair, same_child, windows
from torchcaps.routing import (
    AttentionRouting,
    EMRouting,
    InvertedAttentionRouting,
    Routing,
    RoutingFactory,
)
from torchcaps.routing.base import build_routing

__all__ = ["ConvCapsules", "ConvTransformCapsules"]


class SlidingCapsules(nn.Module, ABC):
    """What the sliding layers share: positions are folded into the batch to route, then unfolded.

    Args:
        n_types: child types i at every position.
        d_child: size of a child's pose.
        kernel_size: of the window.
        stride: between windows.
        padding: zeros around the grid.
    """

    routing: Routing

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
    def votes(self, children: Capsules | Routed) -> Votes:
        """What the children of every window ``[(b h' w') i]`` would vote; nothing is cast."""

    @abstractmethod
    def child_activations(self, children: Capsules | Routed) -> Tensor | None:
        """Activations of the children of every window, ``[(b h' w') i]``, if they have any."""

    def forward(
        self,
        children: Capsules | Routed,
        parents: Tensor | None = None,
        votes: Votes | Tensor | None = None,
    ) -> Routed:
        """Parents of every window.

        Args:
            children: what votes.
            parents: poses of the parents after a previous iteration, if there was one.
            votes: the votes of all windows, if they have been prepared before.
        """
        cast = self.votes(children) if votes is None else votes
        activations = self.child_activations(children)
        size = self.output_size(children.poses)
        if parents is not None:
            if parents.shape[:3] != size:
                raise ValueError(f"parents {list(parents.shape)} must start with {list(size)}")
            parents = parents.flatten(0, 2)
        routed: Routed = self.routing(cast, activations, parents)
        return Routed(*(tensor.reshape(*size, *tensor.shape[1:]) for tensor in routed))

    def extra_repr(self) -> str:
        """What slides over what."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"

    def output_size(self, poses: Tensor) -> tuple[int, int, int]:
        """Batch, height and width of the parents' grid."""
        height, width = (
            (n + 2 * p - k) // s + 1
            for n, k, s, p in zip(
                poses.shape[1:3], self.kernel_size, self.stride, self.padding, strict=True
            )
        )
        return poses.shape[0], height, width

    def grid(self, children: Capsules | Routed) -> Tensor:
        """Child poses ``[b h w i d]``, if the layer was built for them and a window fits."""
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
        kernel_size: of the window.
        stride: between windows.
        padding: rings of absent capsules around the grid: pose zero and, if there are activations,
            activation zero.
        routing: a routing class, or a partial of one.
        matrix: read poses as square matrices (q x q weights) instead of vectors (d x e weights).
        competition: "window": the parents of one window compete for its children; "image": all
            parents of a child do, wherever they are (EM routing only). None takes the paper's:
            "image" for EM, "window" for all others.
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
        routing: RoutingFactory = InvertedAttentionRouting,
        matrix: bool = False,
        competition: Literal["window", "image"] | None = None,
        weight_std: float | None = None,
        vote_norm: VoteNormFactory | None = None,
    ) -> None:
        super().__init__(n_types, d_child, kernel_size, stride, padding)
        n_children = self.kernel_size[0] * self.kernel_size[1] * n_types
        self.weight = vote_weight(
            n_children, n_parents, d_child, d_parent, matrix=matrix, std=weight_std
        )
        self.vote_norm = vote_norm(n_children, n_parents, d_parent) if vote_norm else None
        self.routing = build_routing(routing, n_children, n_parents, d_parent)
        is_em = isinstance(self.routing, EMRouting)
        if competition is None:
            competition = "image" if is_em else "window"
        if competition not in ("window", "image"):
            raise ValueError(f'competition must be "window" or "image", not {competition!r}')
        if competition == "image" and not is_em:
            raise ValueError(
                f'competition="image" is for EMRouting, and {type(self.routing).__name__} '
                'compares the votes of one window: use competition="window"'
            )
        self.competition = competition

    def votes(self, children: Capsules | Routed) -> Votes:
        """What the children of every window would vote; nothing is cast."""
        poses = self.grid(children)
        child = None
        if self.competition == "image":
            size = self.output_size(children.poses)
            child = same_child(size, self.kernel_size, self.stride, self.n_types, poses.device)
        window = Window(self.kernel_size, self.stride, self.padding)
        votes = Votes(poses, self.weight, child=child, window=window)
        return votes if self.vote_norm is None else self.vote_norm(votes)

    def child_activations(self, children: Capsules | Routed) -> Tensor | None:
        """Activations of the children of every window, zero for the padding."""
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
        kernel_size: of the convolution.
        stride: of the convolution.
        padding: zeros around the grid.
        routing: a routing class, or a partial of one.
        bias: of the convolution, one per child type, parent type and entry.
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
        routing: RoutingFactory = AttentionRouting,
        bias: bool = True,
        weight_std: float | None = None,
    ) -> None:
        super().__init__(n_types, d_child, kernel_size, stride, padding)
        d_window = self.kernel_size[0] * self.kernel_size[1] * d_child
        std = d_window**-0.5 if weight_std is None else weight_std
        self.weight = vote_weight(n_types, n_parents, d_window, d_parent, matrix=False, std=std)
        self.bias = nn.Parameter(torch.zeros(n_types, n_parents, d_parent)) if bias else None
        self.routing = build_routing(routing, n_types, n_parents, d_parent)
        if isinstance(self.routing, EMRouting):
            raise ValueError(
                "EM routing weighs children by their activations, and a vote of "
                "ConvTransformCapsules comes from a neighborhood, which has none: use ConvCapsules"
            )

    def votes(self, children: Capsules | Routed) -> Votes:
        """What the children at every position would vote; nothing is cast."""
        grid = windows(self.grid(children), self.kernel_size, self.stride, self.padding)
        poses = grid.transpose(3, 4).flatten(4).flatten(0, 2)
        return Votes(poses, self.weight, bias=self.bias)  # poses [(b h' w') i (k d)]

    def child_activations(self, children: Capsules | Routed) -> None:
        """None: a vote comes from a neighborhood, which has no activation of its own."""

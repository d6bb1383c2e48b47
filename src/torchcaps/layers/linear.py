"""Capsule layers in which every child votes for every parent."""

from typing import final

import torch
from torch import Tensor

from torchcaps.capsules import Capsules, Routed
from torchcaps.layers.base import CapsuleLayer
from torchcaps.layers.votes import VoteNormFactory, vote_weight
from torchcaps.layers.windows import check_capsules, grid_of, without_absent
from torchcaps.routing import defaults
from torchcaps.routing.base import RoutingFactory, Sizes, build_routing
from torchcaps.votes import Votes


@final
class LinearCapsules(CapsuleLayer):
    """A fully connected capsule layer, ``[b i d] -> [b j e]``: one weight per child and parent.

    Capsules on a grid are put in a row first.

    Args:
        n_children: child capsules i; on a grid: height x width x types.
        n_parents: parent capsules j.
        d_child: size of a child's pose.
        d_parent: size of a parent's pose.
        routing: a routing class, or a partial of one.
        matrix: read poses as square matrices (q x q weights) instead of vectors (d x e weights).
        weight_std: standard deviation of the weights at the start; see :func:`vote_weight`.
        vote_norm: :class:`VoteNorm` normalizes votes over the batch; None leaves them.

    Example:
        >>> layer = tc.LinearCapsules(8, 10, 4, 16, routing=tc.DynamicRouting)
        >>> layer(tc.Capsules(torch.rand(2, 8, 4), None)).poses.shape
        torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        n_children: int,
        n_parents: int,
        d_child: int,
        d_parent: int,
        *,
        routing: RoutingFactory = defaults.LINEAR,
        matrix: bool = False,
        weight_std: float | None = None,
        vote_norm: VoteNormFactory | None = None,
    ) -> None:
        super().__init__()
        self.weight = vote_weight(
            n_children, n_parents, d_child, d_parent, matrix=matrix, std=weight_std
        )
        self.shape = (n_children, d_child)
        self.vote_norm = vote_norm(n_children, n_parents, d_parent) if vote_norm else None
        self.routing = build_routing(routing, Sizes(n_children, n_parents, d_child, d_parent))

    def votes(self, children: Capsules | Routed) -> Votes:
        """Return the votes of the children; nothing is cast."""
        check_capsules(children, "LinearCapsules")
        poses = Capsules(children.poses).flat().poses
        if poses.shape[1:] != self.shape:
            raise ValueError(
                f"LinearCapsules takes {self.shape[0]} children with poses of {self.shape[1]}, "
                f"not {list(children.poses.shape)}"
            )
        votes = Votes(poses, self.weight)
        return votes if self.vote_norm is None else self.vote_norm(votes)

    def forward(
        self,
        children: Capsules | Routed,
        parents: Tensor | None = None,
        votes: Votes | Tensor | None = None,
        *,
        mask: Tensor | None = None,
    ) -> Routed:
        """Return the parents of the children.

        Args:
            children: capsules below.
            parents: poses of the parents after a previous iteration, if there was one.
            votes: the children's votes, if they have been prepared before.
            mask: booleans ``[b i]``, or ``[b h w]`` or ``[b h w i]`` on a grid, False for children
                that are absent; None means that all are present.
        """
        check_capsules(children, "LinearCapsules")
        capsules = Capsules(children.poses, children.activations)
        if mask is None:
            return self.route(children, capsules.flat().activations, parents, votes)
        if self.vote_norm is not None:
            raise ValueError(
                "VoteNorm computes its statistics over all children and takes no mask: "
                "build the layer without vote_norm"
            )
        present, mask = without_absent(capsules, mask, "LinearCapsules")
        present, mask = present.flat(), mask.flatten(1)
        return self.route_present(present, present.activations, mask, parents, votes)


@final
class ClassCapsules(CapsuleLayer):
    """The last layer of EM routing: one weight per child type, shared by all positions.

    Takes a grid ``[b h w i d]`` of any size to ``[b j e]``. The position of a child is added to its
    vote (coordinate addition), so that sharing does not lose where it is. Row and column, as
    (row + 1/2) / height and (column + 1/2) / width, go to two entries of the vote. These are the
    first two of the right-hand column of a matrix pose, or the first two of a vector pose.

    Routings that learn something about each child (attention, discriminative) need a fixed number
    of children. For them ``local`` routes at every position among the types there, and takes the
    mean of the parents over positions. Positions then add nothing.

    Args:
        n_types: child types i at every position.
        n_parents: parent capsules j, one per class.
        d_child: size of a child's pose.
        d_parent: size of a parent's pose; at least 2 for coordinate addition.
        routing: a routing class, or a partial of one.
        matrix: read poses as square matrices.
        coordinates: add the position of a child to its vote, unless routing is local; None does so
            where it suits the routing. Dynamic routing sums votes: positions would make every
            parent as long as it can be.
        local: route at every position; None does so for routings that need it.
        weight_std: standard deviation of the weights at the start; see :func:`vote_weight`.
    """

    def __init__(
        self,
        n_types: int,
        n_parents: int,
        d_child: int,
        d_parent: int,
        *,
        routing: RoutingFactory = defaults.CLASSES,
        matrix: bool = True,
        coordinates: bool | None = None,
        local: bool | None = None,
        weight_std: float | None = None,
    ) -> None:
        super().__init__()
        self.weight = vote_weight(
            n_types, n_parents, d_child, d_parent, matrix=matrix, std=weight_std
        )
        self.shape = (n_types, d_child)
        self.routing = build_routing(routing, Sizes(n_types, n_parents, d_child, d_parent))
        if coordinates is None:
            coordinates = self.routing.adds_coordinates
        self.local = self.routing.per_child if local is None else local
        if self.routing.per_child and not self.local:
            raise ValueError(
                f"{type(self.routing).__name__} learns something about each child, and a grid of "
                "any size has any number of them: use local=True"
            )
        self.coordinates = coordinates and not self.local
        if self.coordinates and d_parent < 2:
            raise ValueError(
                "coordinate addition needs a parent's pose of at least 2 numbers: set "
                "coordinates=False, or take larger poses"
            )

    def votes(self, children: Capsules | Routed) -> Votes:
        """Return the votes of the children; nothing is cast. If local, b counts positions too."""
        poses = grid_of(children, *self.shape, "ClassCapsules")
        if self.local:
            return Votes(poses.flatten(0, 2), self.weight)
        votes = Votes(poses.flatten(1, 3), self.weight)
        if not self.coordinates:
            return votes
        dtype = torch.promote_types(poses.dtype, torch.float32)
        height, width = poses.shape[1:3]
        y = (torch.arange(height, dtype=dtype, device=poses.device) + 0.5) / height
        x = (torch.arange(width, dtype=dtype, device=poses.device) + 0.5) / width
        return Votes(votes.poses, votes.weight, bias=self._positions(votes, y[None], x[None])[0])

    def forward(
        self,
        children: Capsules | Routed,
        parents: Tensor | None = None,
        *,
        mask: Tensor | None = None,
    ) -> Routed:
        """Return the parents of the children.

        Args:
            children: capsules below, on a grid.
            parents: poses of the parents after a previous iteration, if there was one.
            mask: booleans ``[b h w]`` or ``[b h w i]``, False for absent children; None means that
                all are present. Coordinates skip rows and columns without a present child.
        """
        grid_of(children, *self.shape, "ClassCapsules")
        if mask is not None:
            return self._route_masked(children, mask, parents)
        activations = children.activations
        if activations is not None:
            activations = activations.flatten(0, 2) if self.local else activations.flatten(1)
        routed = self.route(children, activations, parents)
        if not self.local:
            return routed
        b, h, w = children.poses.shape[:3]
        poses, present, couplings = (x.reshape(b, h * w, *x.shape[1:]) for x in routed)
        return Routed(poses.mean(dim=1), present.mean(dim=1), couplings.flatten(1, 2) / (h * w))

    def _route_masked(
        self, children: Capsules | Routed, mask: Tensor, parents: Tensor | None
    ) -> Routed:
        """Return the parents of the children that are present."""
        present, mask = without_absent(children, mask, "ClassCapsules")
        positions = mask.any(dim=-1)  # [b h w]
        if self.local:
            flat = present.activations.flatten(0, 2) if present.activations is not None else None
            routed = self.route_present(present, flat, mask.flatten(0, 2), parents)
            return _mean_over_positions(routed, positions.to(children.poses.dtype))
        uncast = Votes(present.poses.flatten(1, 3), self.weight)
        votes: Votes | Tensor = uncast
        if self.coordinates:
            y, x = (_ranks(positions.any(dim=axis), present.poses.dtype) for axis in (2, 1))
            votes = uncast.dense() + self._positions(uncast, y, x)
        activations = None if present.activations is None else present.activations.flatten(1)
        return self.route_present(present, activations, mask.flatten(1), parents, votes)

    def _positions(self, votes: Votes, y: Tensor, x: Tensor) -> Tensor:
        """Return rows ``[b h]`` and columns ``[b w]`` as summands of votes, ``[b (h w i) 1 e]``."""
        n_types, e = self.shape[0], votes.shape[3]
        columns = e // votes.rows
        first, second = (columns - 1, 2 * columns - 1) if votes.rows > 1 else (0, 1)
        positions = votes.poses.new_zeros(*y.shape, x.shape[1], n_types, 1, e)
        positions[..., first] = y[:, :, None, None, None]
        positions[..., second] = x[:, None, :, None, None]
        return positions.flatten(1, 3)


def _ranks(present: Tensor, dtype: torch.dtype) -> Tensor:
    """Return (index + 1/2) / count of each of the present entries, ``[b n]``."""
    ones = present.to(torch.promote_types(dtype, torch.float32))
    return (ones.cumsum(dim=1) - 0.5) / ones.sum(dim=1, keepdim=True).clamp_min(1)


def _mean_over_positions(routed: Routed, weights: Tensor) -> Routed:
    """Average the parents of all positions with weights ``[b h w]``, zero for absent ones."""
    b = len(weights)
    weights = weights.reshape(b, -1)
    weights = weights / weights.sum(dim=1, keepdim=True).clamp_min(1)
    poses, present, couplings = (x.reshape(b, -1, *x.shape[1:]) for x in routed)
    return Routed(
        torch.einsum("bk,bkje->bje", weights, poses),
        torch.einsum("bk,bkj->bj", weights, present),
        (couplings * weights[..., None, None]).flatten(1, 2),
    )

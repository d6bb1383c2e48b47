"""Capsule layers in which every child votes for every parent."""

from typing import final

import torch
from torch import Tensor

from torchcaps.capsules import Capsules, Routed
from torchcaps.layers.base import CapsuleLayer
from torchcaps.layers.votes import VoteNormFactory, vote_weight
from torchcaps.layers.windows import check_capsules, grid_of
from torchcaps.routing import defaults
from torchcaps.routing.base import RoutingFactory, Sizes, build_routing
from torchcaps.votes import Votes


@final
class LinearCapsules(CapsuleLayer):
    """Every child has a weight of its own for every parent: ``[b i d] -> [b j e]``.

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
    ) -> Routed:
        """Return the parents of the children.

        Args:
            children: capsules below.
            parents: poses of the parents after a previous iteration, if there was one.
            votes: the children's votes, if they have been prepared before.
        """
        check_capsules(children, "LinearCapsules")
        activations = Capsules(children.poses, children.activations).flat().activations
        return self.route(children, activations, parents, votes)


@final
class ClassCapsules(CapsuleLayer):
    """The last layer of EM routing: one weight per child type, shared by all positions.

    Takes a grid ``[b h w i d]`` of any size to ``[b j e]``. So that sharing does not lose where a
    child is, its position is added to its vote (coordinate addition): (row + 1/2) / height and
    (column + 1/2) / width go to the first two entries of the right-hand column of a matrix pose,
    or to the first two entries of a vector pose.

    Routings that learn something about each child (attention, discriminative) need to know how many
    there are, and a grid of any size does not say: ``local`` routes at every position among the
    types there, and takes the mean of the parents over positions. Positions then add nothing.

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
        bias = self._positions(votes, poses.shape[1], poses.shape[2])
        return Votes(votes.poses, votes.weight, bias=bias)

    def forward(self, children: Capsules | Routed, parents: Tensor | None = None) -> Routed:
        """Return the parents of the children, starting from previous ``parents`` if given."""
        grid_of(children, *self.shape, "ClassCapsules")
        activations = children.activations
        if activations is not None:
            activations = activations.flatten(0, 2) if self.local else activations.flatten(1)
        routed = self.route(children, activations, parents)
        if not self.local:
            return routed
        b, h, w = children.poses.shape[:3]
        poses, present, couplings = (x.reshape(b, h * w, *x.shape[1:]) for x in routed)
        return Routed(poses.mean(dim=1), present.mean(dim=1), couplings.flatten(1, 2) / (h * w))

    def _positions(self, votes: Votes, height: int, width: int) -> Tensor:
        """Return the positions of the children, ``[(h w i) 1 e]``, zero but for two entries."""
        n_types, e = self.shape[0], votes.shape[3]
        columns = e // votes.rows
        first, second = (columns - 1, 2 * columns - 1) if votes.rows > 1 else (0, 1)
        device = votes.poses.device
        dtype = torch.promote_types(votes.poses.dtype, torch.float32)
        positions = votes.poses.new_zeros(height, width, n_types, 1, e)
        y = (torch.arange(height, dtype=dtype, device=device) + 0.5) / height
        x = (torch.arange(width, dtype=dtype, device=device) + 0.5) / width
        positions[..., first] = y[:, None, None, None]
        positions[..., second] = x[:, None, None]
        return positions.flatten(0, 2)

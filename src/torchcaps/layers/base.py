"""The base of every layer whose children vote for parents."""

from abc import ABC, abstractmethod
from dataclasses import replace

from torch import Tensor, nn

from torchcaps.capsules import Capsules, Routed
from torchcaps.routing.base import Routing
from torchcaps.votes import Votes


class CapsuleLayer(nn.Module, ABC):
    """A layer whose children vote by weights ``[i j q r]``, and whose routing makes the parents."""

    weight: nn.Parameter
    routing: Routing

    @abstractmethod
    def votes(self, children: Capsules | Routed) -> Votes:
        """Return the votes of the children; nothing is cast."""

    def route_present(
        self,
        children: Capsules | Routed,
        activations: Tensor | None,
        mask: Tensor,
        parents: Tensor | None = None,
        votes: Votes | Tensor | None = None,
    ) -> Routed:
        """Route the votes of the children that are present; see :meth:`route`.

        Args:
            children: capsules below; the poses of absent ones must be zero.
            activations: see :meth:`route`.
            mask: ``[b i]``, True for children that are present.
            parents: see :meth:`route`.
            votes: see :meth:`route`; those of absent children count as zero.
        """
        votes = self.votes(children) if votes is None else votes
        if isinstance(votes, Votes) and votes.bias is None:
            votes = replace(votes, poses=votes.poses.masked_fill(~mask[..., None], 0))
        else:  # the vote of a zero pose is the bias
            dense = votes.dense() if isinstance(votes, Votes) else votes
            votes = dense.masked_fill(~mask[..., None, None], 0)
        if activations is not None:
            activations = activations.masked_fill(~mask, 0)
        elif self.routing.child_activations != "ignored":
            activations = mask.to(children.poses.dtype)
        poses = children.poses.reshape(*mask.shape, -1)
        return self.routing.route_present(Capsules(poses, activations), votes, mask, parents)

    def route(
        self,
        children: Capsules | Routed,
        activations: Tensor | None,
        parents: Tensor | None = None,
        votes: Votes | Tensor | None = None,
    ) -> Routed:
        """Route the votes of the children, positions folded into the batch.

        Args:
            children: capsules below.
            activations: activations ``[b i]`` of the routing's children, if they have any.
            parents: poses ``[b j e]`` of the parents after a previous iteration, if there was one.
            votes: the votes, if they have been prepared before.
        """
        votes = self.votes(children) if votes is None else votes
        poses = children.poses
        if self.routing.reads_poses:
            uncast = votes if isinstance(votes, Votes) else self.votes(children)
            poses = uncast.children()
        routed: Routed = self.routing(Capsules(poses, activations), votes, parents)
        return routed

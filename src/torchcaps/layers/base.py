"""The base of every layer whose children vote for parents."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from torchcaps.capsules import Capsules, Routed
from torchcaps.routing.base import Routing
from torchcaps.votes import Votes


class CapsuleLayer(nn.Module, ABC):
    """Children vote by weights ``[i j q r]``, and a routing turns the votes into parents."""

    weight: nn.Parameter
    routing: Routing

    @abstractmethod
    def votes(self, children: Capsules | Routed) -> Votes:
        """Return the votes of the children; nothing is cast."""

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

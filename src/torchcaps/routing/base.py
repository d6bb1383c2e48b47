"""The vocabulary every routing shares."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal, TypeGuard

from torch import Tensor, nn

from torchcaps import kernels
from torchcaps.capsules import Routed, Votes, check_alike
from torchcaps.checks import check_sizes

__all__ = ["Implementation", "Routing", "RoutingFactory"]

Implementation = Literal["auto", "torch", "fused"]


class Routing(nn.Module, ABC):
    """Sends the votes of child capsules to parent capsules; owns what the routing learns.

    A layer is given a class, or a ``partial`` of one, and builds it for its own sizes:
    ``routing=partial(EMRouting, iterations=2)``.

    Args:
        n_children: child capsules that one parent sees.
        n_parents: parent capsules that one child sees.
        d_parent: size of a parent's pose.
        implementation: "torch" is the plain function, "fused" its kernel, "auto" the kernel where
            there is one for the votes at hand and the plain function elsewhere. The repr says
            whether there is one for these sizes on the default GPU, and if not why; votes can still
            be unfit for it, of which "fused" says why.
    """

    competes_over: ClassVar[Literal["parents", "children", "none"]]
    """The axis over which couplings sum to one."""

    per_child: bool = False
    """Whether something is learned about each child, which fixes how many there are."""

    has_kernel: ClassVar[bool] = False
    """Whether there is a fused twin of the plain function."""

    scaled_kernel: ClassVar[bool] = False
    """Whether that twin takes votes with a scale and a bias of any kind."""

    image_kernel: ClassVar[bool] = False
    """Whether that twin lets parents of different windows compete."""

    def __init__(
        self,
        n_children: int,
        n_parents: int,
        d_parent: int,
        *,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__()
        check_sizes(n_children=n_children, n_parents=n_parents, d_parent=d_parent)
        if implementation not in ("auto", "torch", "fused"):
            raise ValueError(
                f'implementation must be "auto", "torch" or "fused", not {implementation!r}'
            )
        if implementation == "fused" and not self.has_kernel:
            raise ValueError(
                f'{type(self).__name__} has no fused kernel: use implementation="auto" or "torch"'
            )
        self.n_children = n_children
        self.n_parents = n_parents
        self.d_parent = d_parent
        self.implementation = implementation

    @abstractmethod
    def forward(
        self,
        votes: Votes | Tensor,
        activations: Tensor | None = None,
        parents: Tensor | None = None,
    ) -> Routed:
        """Route votes to parents.

        Args:
            votes: votes not yet cast, or dense votes ``[b i j e]``.
            activations: activations ``[b i]`` of the children, for the routing that weighs by them.
            parents: poses ``[b j e]`` of the previous iteration, for the routing that starts there.
        """

    def fused(self, votes: Votes | Tensor) -> TypeGuard[Votes]:
        """Whether the kernel routes these votes; if it was asked for and cannot, say why."""
        if self.implementation == "torch":
            return False
        why = self.obstacle() or kernels.obstacle(
            votes, scaled=self.scaled_kernel, image=self.image_kernel
        )
        if why is not None and self.implementation == "fused":
            raise ValueError(
                f'{type(self).__name__} with implementation="fused" cannot run because {why}: '
                'use implementation="auto" or "torch"'
            )
        return why is None

    def obstacle(self) -> str | None:
        """Why no votes at all can take the kernel, if so."""
        if not self.has_kernel:
            return "there is no kernel for it"
        return kernels.size_obstacle(self.n_parents, self.d_parent)

    def chunked(self, votes: Votes | Tensor) -> TypeGuard[Votes]:
        """Whether the plain function casts these votes in chunks, again in every iteration."""
        return False

    def prepared(self, votes: Votes) -> Votes | Tensor:
        """Votes as they are best routed several times: cast, or as they are for the kernel."""
        self.check(votes)
        if self.fused(votes):
            return kernels.lowered(votes)
        return votes if self.chunked(votes) else votes.dense()

    def cast(self, votes: Votes | Tensor) -> Tensor:
        """Dense votes ``[b i j e]``, checked against the sizes this routing was built for."""
        self.check(votes)
        if isinstance(votes, Votes):
            return votes.dense()
        learned = next(self.parameters(), None)
        if learned is not None and votes.is_floating_point():
            check_alike("votes", votes, "what the routing learned", learned)
        return votes

    def check(self, votes: Votes | Tensor) -> None:
        """Refuse votes for other parents than this routing was built for."""
        if len(votes.shape) != 4:
            raise ValueError(f"votes must be [b i j e], not {list(votes.shape)}")
        _, _, j, e = votes.shape
        if (j, e) != (self.n_parents, self.d_parent):
            raise ValueError(
                f"{type(self).__name__} was built for {self.n_parents} parents with poses of "
                f"{self.d_parent}, and the votes {list(votes.shape)} are for {j} with poses of {e}"
            )

    def refuse(self, parents: Tensor | None) -> None:
        """Say that this routing does not start from the parents of a previous iteration."""
        if parents is not None:
            raise ValueError(
                f"{type(self).__name__} starts from the votes alone and takes no parents"
            )

    def options(self) -> str:
        """What the repr says beside the sizes."""
        return ""

    def extra_repr(self) -> str:
        """Sizes, options and the implementation that there is for them."""
        sizes = f"{self.n_children} children, {self.n_parents} parents of {self.d_parent}"
        runs = "torch"
        if self.implementation != "torch":
            why = self.obstacle()
            runs = "fused" if why is None else f"torch ({why})"
        parts = [sizes, self.options(), f"implementation={runs}"]
        return ", ".join(part for part in parts if part)


def build_routing(factory: object, n_children: int, n_parents: int, d_parent: int) -> Routing:
    """Build a layer's routing, or say what a routing argument should be."""
    if isinstance(factory, nn.Module) or not callable(factory):
        said = type(factory).__name__ if isinstance(factory, nn.Module) else repr(factory)
        raise ValueError(
            "routing must be a routing class such as torchcaps.DynamicRouting, or a partial of "
            f"one, not {said}"
        )
    try:
        routing = factory(n_children, n_parents, d_parent)
    except TypeError as error:
        raise ValueError(
            f"routing={getattr(factory, '__name__', factory)} cannot be built from n_children, "
            f"n_parents and d_parent: {error}"
        ) from error
    if not isinstance(routing, Routing):
        raise ValueError(f"routing must build a torchcaps.Routing, not {type(routing).__name__}")
    return routing


RoutingFactory = Callable[[int, int, int], Routing]
"""A routing class, or a partial of one: called with n_children, n_parents and d_parent."""


def check_iterations(iterations: int) -> None:
    """Refuse a count of iterations that is not a positive whole number."""
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
        raise ValueError(f"iterations must be a whole number of at least 1, not {iterations!r}")


def check_activations(activations: Tensor, votes: Votes | Tensor) -> None:
    """Refuse activations that are not one number per child of the votes."""
    if tuple(activations.shape) != tuple(votes.shape[:2]):
        raise ValueError(
            f"activations {list(activations.shape)} must be one number per child of the votes "
            f"{list(votes.shape)}"
        )

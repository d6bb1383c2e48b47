"""The contract that every routing keeps, and the helpers that routings share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps import kernels
from torchcaps.capsules import Capsules, Routed, check_alike
from torchcaps.checks import check_sizes, check_whole
from torchcaps.functional import lengths
from torchcaps.votes import Votes

Axis = Literal["parents", "children", "none"]
Score = Literal["length", "activation", "logit"]
Primary = Literal["squash", "norm", "rectify", "none"]
ChildActivations = Literal["ignored", "used", "required"]
Competition = Literal["window", "image"]
Implementation = Literal["auto", "torch", "fused"]
Path = Literal["fused", "chunked", "plain"]


class Sizes(NamedTuple):
    """Sizes that a routing is built for.

    ``n_children`` are the children that one parent sees, ``n_parents`` the parents that one child
    sees; ``d_child`` and ``d_parent`` are the sizes of their poses.
    """

    n_children: int
    n_parents: int
    d_child: int
    d_parent: int


class Kernel(NamedTuple):
    """Abilities of a routing's fused kernel.

    ``scaled``: it takes votes with any scale and bias. ``image``: parents of different windows may
    compete.
    """

    scaled: bool = False
    image: bool = False


class Routing(nn.Module, ABC):
    """Base class of the routings, from votes of children to parents; owns what is learned.

    A layer takes a class, or a ``partial`` of one, and builds it for its own sizes:
    ``routing=partial(EMRouting, iterations=2)``. Layers, networks, training and analysis read the
    class attributes below, so that none of them has to know which routing it deals with.

    Args:
        sizes: numbers of capsules and sizes of poses.
        implementation: "torch" runs the plain function and "fused" its kernel. "auto" takes the
            kernel where it can run. "fused" raises an error that says why it cannot.
    """

    competes_over: ClassVar[Axis]
    """The axis over which couplings sum to one."""

    scores_by: ClassVar[Score] = "length"
    """The score of a class in a head (length, activation, or logit of a shared classifier)."""

    primary: ClassVar[Primary] = "squash"
    """The nonlinearity that suits the primary capsules below."""

    weight_std: ClassVar[float | None] = None
    """Initial standard deviation of a head's vote weights; None leaves it to the layer."""

    adds_coordinates: ClassVar[bool] = True
    """True if votes may carry the positions of their children (coordinate addition)."""

    long_poses: ClassVar[bool] = False
    """True if the entries of a pose are of size one, so that its length is about sqrt(d_parent)."""

    competition: ClassVar[Competition] = "window"
    """The parents that compete for a child in a convolution (those of one window, or all)."""

    reads_poses: ClassVar[bool] = False
    """True if ``forward`` reads the children's poses and not their votes alone."""

    takes_parents: ClassVar[bool] = False
    """True if it starts from the parents of a previous iteration (concurrent routing)."""

    objective_parameters: ClassVar[tuple[str, ...]] = ()
    """Names of the parameters that climb :meth:`objective` and do not descend the loss."""

    kernel: ClassVar[Kernel | None] = None
    """Abilities of the fused kernel, if there is one."""

    child_activations: ChildActivations = "ignored"
    """The use of the children's activations, which weigh votes (ignored, used or required)."""

    can_chunk: bool = False
    """True if it can cast votes in chunks, or tiles of parents, again in every iteration."""

    per_child: bool = False
    """True if it learns something about each child, which fixes their number."""

    iterations: int | None = None
    """Routing iterations; None for a routing that does not iterate."""

    def __init__(self, sizes: Sizes, *, implementation: Implementation = "auto") -> None:
        super().__init__()
        if not isinstance(sizes, Sizes):
            raise ValueError(
                "a routing is built from torchcaps.Sizes(n_children, n_parents, d_child, "
                f"d_parent), not from {sizes!r}"
            )
        check_sizes(**sizes._asdict())
        if implementation not in ("auto", "torch", "fused"):
            raise ValueError(
                f'implementation must be "auto", "torch" or "fused", not {implementation!r}'
            )
        if implementation == "fused" and self.kernel is None:
            raise ValueError(
                f'{type(self).__name__} has no fused kernel: use implementation="auto" or "torch"'
            )
        self.sizes = sizes
        self.implementation = implementation

    @abstractmethod
    def forward(
        self, children: Capsules, votes: Votes | Tensor, parents: Tensor | None = None
    ) -> Routed:
        """Route votes to parents.

        Args:
            children: poses ``[b i d]`` and activations ``[b i]`` of the children. A routing that
                does not read poses may get them uncut, on the grid under a convolution.
            votes: votes not yet cast, or dense votes ``[b i j e]``.
            parents: poses ``[b j e]`` of the previous iteration, if there was one.
        """

    def route_present(
        self,
        children: Capsules,
        votes: Votes | Tensor,
        mask: Tensor,
        parents: Tensor | None = None,
    ) -> Routed:
        """Route the children that are present, as if the absent ones did not exist.

        Layers call it with votes of zero and, where there are activations, activations of zero for
        absent children. By default that is enough, and their couplings become zero. Routings that
        divide by the number of children, or let children compete, override it.

        Args:
            children: see :meth:`forward`.
            votes: see :meth:`forward`; zero for absent children.
            mask: ``[b i]``, True for children that are present.
            parents: see :meth:`forward`.
        """
        routed: Routed = self(children, votes, parents)
        return routed._replace(couplings=routed.couplings * mask[..., None])

    def objective(
        self,
        votes: Votes | Tensor,
        targets: Tensor,
        *,
        share: float = 1.0,
        strength: float | None = None,
    ) -> Tensor | None:
        """Return what ``objective_parameters`` maximize; None for routings without an objective.

        Args:
            votes: the votes of the layer.
            targets: class numbers ``[b]``, or zeros and ones ``[b j]``.
            share: part of the whole batch that these votes are; scales penalties.
            strength: weight of the penalty; None takes the routing's own.
        """
        return None

    def logits(self, votes: Votes | Tensor, steps: Sequence[Routed]) -> list[Tensor]:
        """Return the logits ``[b i j]`` of the couplings after each iteration.

        By default the logarithm of the couplings, centered over parents: a softmax over parents
        sees no more of its logits than that.
        """
        logs = [step.couplings.clamp_min(1e-30).log() for step in steps]
        return [log - log.mean(dim=-1, keepdim=True) for log in logs]

    @contextmanager
    def uniform_couplings(self) -> Iterator[bool]:
        """Couple every child alike inside this context; yield whether this routing can.

        By default one iteration, which couples uniformly. Routings that do not iterate override
        this method, unless nothing about them can be uniform.
        """
        iterations = self.iterations
        if iterations is not None:
            self.iterations = 1
        try:
            yield iterations is not None
        finally:
            self.iterations = iterations

    def contributions(self, children: Capsules, votes: Votes | Tensor, routed: Routed) -> Tensor:
        """Return how much each child gave to each parent, ``[b i j]``, at least 0.

        By default the length of the vote, times the coupling and the child's activation if used.
        """
        amounts = routed.couplings.clamp_min(0) * lengths(self.cast(votes))
        if self.child_activations != "ignored" and children.activations is not None:
            amounts = amounts * children.activations[..., None]
        return amounts

    def path(self, votes: Votes | Tensor) -> Path:
        """Choose how to route these votes; refuse "fused" where the kernel cannot run."""
        if self.implementation != "torch":
            able = self.kernel or Kernel()
            why = self.obstacle()
            why = why or kernels.obstacle(
                votes, scaled=able.scaled, image=able.image, tiled=self.can_chunk
            )
            if why is None:
                return "fused"
            if self.implementation == "fused":
                raise ValueError(
                    f'{type(self).__name__} with implementation="fused" cannot run because {why}: '
                    'use implementation="auto" or "torch"'
                )
        return "chunked" if self.can_chunk and kernels.worth_chunking(votes) else "plain"

    def obstacle(self) -> str | None:
        """Return why no votes at all can take the kernel, or None."""
        if self.kernel is None:
            return "there is no kernel for it"
        n_parents, d_parent = self.sizes.n_parents, self.sizes.d_parent
        return kernels.size_obstacle(n_parents, d_parent, tiled=self.can_chunk)

    def cast(self, votes: Votes | Tensor) -> Tensor:
        """Return dense votes ``[b i j e]``, checked against the sizes of this routing."""
        self.check(votes)
        if isinstance(votes, Votes):
            return votes.dense()
        learned = next(self.parameters(), None)
        if learned is not None and votes.is_floating_point():
            check_alike("votes", votes, "what the routing learned", learned)
        return votes

    def uncast(self, votes: Votes | Tensor, path: Path) -> Votes:
        """Return votes that a kernel or chunks will cast, checked like :meth:`cast`."""
        self.check(votes)
        assert isinstance(votes, Votes)
        return kernels.lowered(votes) if path == "fused" else votes

    def prepared(self, votes: Votes) -> Votes | Tensor:
        """Return votes in the form in which they are best routed several times."""
        path = self.path(votes)
        return self.cast(votes) if path == "plain" else self.uncast(votes, path)

    def check(self, votes: Votes | Tensor) -> None:
        """Refuse votes for other parents than this routing was built for."""
        if len(votes.shape) != 4:
            raise ValueError(f"votes must be [b i j e], not {list(votes.shape)}")
        _, _, j, e = votes.shape
        n_parents, d_parent = self.sizes.n_parents, self.sizes.d_parent
        if (j, e) != (n_parents, d_parent):
            raise ValueError(
                f"{type(self).__name__} was built for {n_parents} parents with poses of "
                f"{d_parent}, and the votes {list(votes.shape)} are for {j} with poses of {e}"
            )

    def check_activations(self, children: Capsules, votes: Votes | Tensor) -> Tensor:
        """Return the activations of the children, which must be one number per child."""
        activations = children.activations
        if activations is None:
            raise ValueError(
                f"{type(self).__name__} weighs children by their activations, and these have none: "
                "build the layer below with activations"
            )
        check_activations(activations, votes)
        return activations

    def refuse_parents(self, parents: Tensor | None) -> None:
        """Refuse parents where routing does not start from those of a previous iteration."""
        if parents is not None:
            raise ValueError(
                f"{type(self).__name__} starts from the votes alone and takes no parents"
            )

    def options(self) -> str:
        """Return what the repr says beside the sizes."""
        return ""

    def extra_repr(self) -> str:
        """Return sizes, options, and the implementation that runs for these sizes."""
        sizes = self.sizes
        text = f"{sizes.n_children} children, {sizes.n_parents} parents of {sizes.d_parent}"
        runs = "torch"
        if self.implementation != "torch":
            why = self.obstacle()
            runs = "fused" if why is None else f"torch ({why})"
        parts = [text, self.options(), f"implementation={runs}"]
        return ", ".join(part for part in parts if part)


RoutingFactory = Callable[[Sizes], Routing]
"""A routing class, or a partial of one: called with the sizes."""


def build_routing(factory: object, sizes: Sizes) -> Routing:
    """Build a layer's routing, or say what a routing argument should be."""
    if isinstance(factory, nn.Module) or not callable(factory):
        name = type(factory).__name__ if isinstance(factory, nn.Module) else repr(factory)
        raise ValueError(
            "routing must be a routing class such as torchcaps.DynamicRouting, or a partial of "
            f"one, not {name}"
        )
    is_class = isinstance(getattr(factory, "func", factory), type)
    wrong_arguments = (TypeError,) if is_class else (TypeError, ValueError)
    try:
        routing = factory(sizes)
    except wrong_arguments as error:
        raise ValueError(
            f"routing={getattr(factory, '__name__', factory)} cannot be built from "
            f"torchcaps.Sizes alone: {error}"
        ) from error
    if not isinstance(routing, Routing):
        raise ValueError(f"routing must build a torchcaps.Routing, not {type(routing).__name__}")
    return routing


def preview_routing(factory: RoutingFactory) -> Routing:
    """Build a routing without memory or random numbers, to read its attributes."""
    with torch.device("meta"):
        return build_routing(factory, Sizes(4, 4, 4, 4))


def check_activations(activations: Tensor, votes: Votes | Tensor) -> None:
    """Refuse activations that are not one number per child of the votes."""
    if tuple(activations.shape) != tuple(votes.shape[:2]):
        raise ValueError(
            f"activations {list(activations.shape)} must be one number per child of the votes "
            f"{list(votes.shape)}"
        )


def check_iterations(iterations: int) -> None:
    """Refuse a number of iterations that is not a positive whole number."""
    check_whole("iterations", iterations, least=1)


@contextmanager
def filled(parameters: Iterable[nn.Parameter | None], value: float) -> Iterator[None]:
    """Fill parameters with a number inside this context, and restore them afterwards."""
    changed = [(p, p.detach().clone()) for p in parameters if p is not None]
    with torch.no_grad():
        for parameter, _ in changed:
            parameter.fill_(value)
        try:
            yield
        finally:
            for parameter, before in changed:
                parameter.copy_(before)

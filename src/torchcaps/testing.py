"""The contract every routing keeps, as functions to run on a routing of your own.

    from torchcaps.testing import check_routing
    check_routing(MyRouting)

A broken promise raises an AssertionError that says which. The sizes are different primes, so that
an axis of a parameter tells by its size what it runs over.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from torchcaps.capsules import Capsules, Routed
from torchcaps.errors import UsageError
from torchcaps.routing.base import Routing, RoutingFactory, Sizes
from torchcaps.votes import Votes

_Tensors = tuple[Tensor, ...]
_Index = slice | tuple[slice, Tensor]

BATCH, CHILDREN, PARENTS, CHILD_POSE, POSE = 2, 7, 3, 2, 5


def check_routing(factory: RoutingFactory) -> None:
    """Run the whole contract on a routing class, or on a partial of one."""
    if not callable(factory):
        raise UsageError(f"check_routing takes a routing class or a partial, not {factory!r}")
    for check in CONTRACT:
        check(factory)


def returns_the_declared_shapes(factory: RoutingFactory) -> None:
    """Poses ``[b j e]``, activations ``[b j]``, couplings ``[b i j]``, also for sizes of one."""
    for b, i, j, e in ((2, 7, 3, 5), (1, 7, 3, 5), (2, 1, 3, 5), (2, 7, 1, 5), (2, 7, 3, 1)):
        routing, children, votes = _example(factory, b, i, j, e)
        routed = routing(children, votes)
        assert isinstance(routed, Routed), "a routing returns Routed(poses, activations, couplings)"
        shapes = tuple(tuple(tensor.shape) for tensor in routed)
        assert shapes == ((b, j, e), (b, j), (b, i, j)), f"shapes {shapes} for votes {(b, i, j, e)}"
        assert _finite(routed), f"not finite for votes of shape {(b, i, j, e)}"


def couplings_are_the_declared_distribution(factory: RoutingFactory) -> None:
    """Couplings are at least 0 and sum to 1 over the axis named by ``competes_over``."""
    routing, children, votes = _example(factory)
    couplings = routing(children, votes).couplings
    if routing.competes_over == "none":
        return
    assert (couplings >= 0).all(), "a coupling is negative"
    total = couplings.sum(dim={"children": 1, "parents": 2}[routing.competes_over])
    _same(total, torch.ones_like(total), f"couplings do not sum to 1 over {routing.competes_over}")


def a_sample_does_not_see_its_batch_mates(factory: RoutingFactory) -> None:
    """Routing samples together or alone gives the same."""
    routing, children, votes = _example(factory, b=3)
    together = routing(children, votes)
    for n in range(3):
        alone = routing(_select(children, slice(n, n + 1)), votes[n : n + 1])
        for name, whole, part in zip(Routed._fields, together, alone, strict=True):
            _same(part[0], whole[n], f"the {name} of a sample depend on its batch mates")


def gradients_are_right(factory: RoutingFactory) -> None:
    """Gradients of all outputs by votes, children and parameters equal finite differences."""
    routing, children, votes = _example(factory, 2, 3, 2, 3)
    names = [name for name, _ in routing.named_parameters()]

    def outputs(votes: Tensor, poses: Tensor, present: Tensor, *values: Tensor) -> _Tensors:
        parameters = dict(zip(names, values, strict=True))
        arguments = (Capsules(poses, present), votes)
        routed: Routed = torch.func.functional_call(routing, parameters, arguments)
        assert routed.poses.requires_grad, "poses are cut off from the votes"
        assert routed.activations.requires_grad, "activations are cut off from the votes"
        return tuple(tensor for tensor in routed if tensor.requires_grad)

    assert children.activations is not None
    learned = (p.detach().clone() for p in routing.parameters())
    inputs = (votes, children.poses, children.activations, *learned)
    assert torch.autograd.gradcheck(outputs, tuple(x.requires_grad_() for x in inputs))


def child_order_does_not_matter(factory: RoutingFactory) -> None:
    """Permuting children, and what is learned about them, permutes couplings and nothing else."""
    routing, children, votes = _example(factory)
    order = torch.randperm(CHILDREN, generator=_generator())
    expected = routing(children, votes)
    reordered = _select(children, (slice(None), order))
    routed = _permuted(routing, CHILDREN, order)(reordered, votes[:, order])
    _same(routed.poses, expected.poses, "poses depend on the order of children")
    _same(routed.activations, expected.activations, "activations depend on the order of children")
    _same(routed.couplings, expected.couplings[:, order], "couplings do not follow the children")


def parent_order_does_not_matter(factory: RoutingFactory) -> None:
    """Permuting parents, and what is learned about them, permutes all outputs with them."""
    routing, children, votes = _example(factory)
    order = torch.tensor([2, 0, 1])
    expected = routing(children, votes)
    routed = _permuted(routing, PARENTS, order)(children, votes[:, :, order])
    _same(routed.poses, expected.poses[:, order], "poses do not follow the parents")
    _same(routed.activations, expected.activations[:, order], "activations do not follow")
    _same(routed.couplings, expected.couplings[..., order], "couplings do not follow the parents")


def zero_votes_have_finite_gradients(factory: RoutingFactory) -> None:
    """Votes of exactly zero, all or one of them, give finite outputs and gradients."""
    for alone in (False, True):
        routing, children, votes = _example(factory)
        votes = votes.clone()
        votes[:, 0 if alone else slice(None)] = 0
        _check_backward(routing, children, votes, "zero votes")


def absent_children_have_finite_gradients(factory: RoutingFactory) -> None:
    """Child activations of exactly 0 and exactly 1 give finite outputs and gradients."""
    for value in (0.0, 1.0):
        routing, children, votes = _example(factory)
        assert children.activations is not None
        present = torch.full_like(children.activations, value)
        _check_backward(routing, Capsules(children.poses, present), votes, "activations")


def bfloat16_stays_finite(factory: RoutingFactory) -> None:
    """bfloat16 votes, small, usual and large, give finite outputs and gradients."""
    for scale in (1e-3, 1.0, 1e3):
        routing, children, votes = _example(factory, dtype=torch.bfloat16)
        _check_backward(routing, children, scale * votes, f"bfloat16 votes of size {scale}")


def compiles_as_one_graph(factory: RoutingFactory) -> None:
    """``torch.compile(fullgraph=True)`` gives the same outputs."""
    routing, children, votes = _example(factory)
    compiled = torch.compile(routing, fullgraph=True, backend="aot_eager")
    for name, actual, expected in zip(
        Routed._fields, compiled(children, votes), routing(children, votes), strict=True
    ):
        _same(actual, expected, f"the compiled {name} differ")


def state_survives_a_round_trip(factory: RoutingFactory) -> None:
    """Another instance with the state dict of the first gives exactly the same outputs."""
    routing, children, votes = _example(factory)
    other = factory(routing.sizes).to(votes.dtype)
    other.load_state_dict(routing.state_dict())
    for actual, expected in zip(other(children, votes), routing(children, votes), strict=True):
        assert torch.equal(actual, expected), (
            "the state dict does not hold all there is to the routing"
        )


def votes_need_not_be_cast(factory: RoutingFactory) -> None:
    """Votes that have not been cast are routed like the dense votes they stand for."""
    routing, children, _ = _example(factory, 2, 6, 3, 4, d=8)
    for q, shared in ((8, 6), (2, 6), (2, 3)):  # vector poses, matrix poses, shared weights
        weight = torch.randn(shared, 3, q, q // 2, generator=_generator(), dtype=torch.float64)
        votes = Votes(children.poses, weight)
        for actual, expected in zip(
            routing(children, votes), routing(children, votes.dense()), strict=True
        ):
            _same(actual, expected, "votes not yet cast are routed differently")


def absent_children_change_nothing(factory: RoutingFactory) -> None:
    """Routing with some children masked equals routing without them."""
    routing, children, votes = _example(factory)
    present_children = torch.tensor([0, 2, 3, 5])
    mask = torch.zeros(BATCH, CHILDREN, dtype=torch.bool)
    mask[:, present_children] = True
    assert children.activations is not None
    masked = Capsules(children.poses * mask[..., None], children.activations.masked_fill(~mask, 0))
    routed = routing.route_present(masked, votes.masked_fill(~mask[..., None, None], 0), mask)
    alone = _selected(factory, routing, present_children)
    expected = alone(_select(children, (slice(None), present_children)), votes[:, present_children])
    _same(routed.poses, expected.poses, "absent children change the poses")
    _same(routed.activations, expected.activations, "absent children change the activations")
    _same(
        routed.couplings[:, present_children],
        expected.couplings,
        "absent children change the couplings",
    )
    assert not routed.couplings[~mask].any(), "absent children are coupled"


CONTRACT: tuple[Callable[[RoutingFactory], None], ...] = (
    returns_the_declared_shapes,
    couplings_are_the_declared_distribution,
    a_sample_does_not_see_its_batch_mates,
    gradients_are_right,
    child_order_does_not_matter,
    parent_order_does_not_matter,
    zero_votes_have_finite_gradients,
    absent_children_have_finite_gradients,
    bfloat16_stays_finite,
    compiles_as_one_graph,
    state_survives_a_round_trip,
    votes_need_not_be_cast,
    absent_children_change_nothing,
)


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _example(
    factory: RoutingFactory,
    b: int = BATCH,
    i: int = CHILDREN,
    j: int = PARENTS,
    e: int = POSE,
    *,
    d: int = CHILD_POSE,
    dtype: torch.dtype = torch.float64,
) -> tuple[Routing, Capsules, Tensor]:
    """Build a routing with random parameters; draw children and dense votes."""
    generator = _generator()
    routing = factory(Sizes(i, j, d, e)).to(dtype)
    with torch.no_grad():
        for parameter in routing.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    votes = torch.randn(b, i, j, e, generator=generator).to(dtype)
    activations = torch.rand(b, i, generator=generator).to(dtype)
    poses = torch.randn(b, i, d, generator=generator).to(dtype)
    return routing, Capsules(poses, activations), votes


def _select(children: Capsules, index: _Index) -> Capsules:
    """Return the capsules at an index of both tensors."""
    assert children.activations is not None
    return Capsules(children.poses[index], children.activations[index])


def _permuted(routing: Routing, size: int, order: Tensor) -> Routing:
    """Copy the routing with its parameters permuted along every axis of the given size."""
    routing = copy.deepcopy(routing)
    with torch.no_grad():
        for parameter in routing.parameters():
            for axis, length in enumerate(parameter.shape):
                if length == size:
                    parameter.copy_(parameter.index_select(axis, order))
    return routing


def _selected(factory: RoutingFactory, routing: Routing, present_children: Tensor) -> Routing:
    """Build the routing for some of the children, with what the other learned about these."""
    _, j, d, e = routing.sizes
    alone = factory(Sizes(len(present_children), j, d, e)).double()
    state = routing.state_dict()
    for name, value in state.items():
        for axis, length in enumerate(value.shape):
            if length == CHILDREN:
                value = value.index_select(axis, present_children)
        state[name] = value
    alone.load_state_dict(state)
    return alone


def _check_backward(routing: Routing, children: Capsules, votes: Tensor, what: str) -> None:
    poses, activations = (t.detach().requires_grad_() for t in children if t is not None)
    votes = votes.detach().requires_grad_()
    routed = routing(Capsules(poses, activations), votes)
    assert _finite(routed), f"outputs are not finite for {what}"
    sum(tensor.float().square().sum() for tensor in routed).backward()
    learned = routing.parameters()
    gradients = [x.grad for x in (votes, poses, activations, *learned) if x.grad is not None]
    assert votes.grad is not None, "the votes get no gradient"
    assert _finite(gradients), f"gradients are not finite for {what}"


def _finite(tensors: tuple[Tensor, ...] | list[Tensor]) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors)


def _same(actual: Tensor, expected: Tensor, message: str) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9, msg=message)

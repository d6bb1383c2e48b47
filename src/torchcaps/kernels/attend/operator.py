"""One agreement step as a PyTorch operator."""

from typing import Any

from torch import Tensor

from torchcaps.kernels.common.geometry import packed_weight_shape
from torchcaps.kernels.common.operators import layout_of, operands, operator
from torchcaps.votes import Votes


def attend(
    votes: Votes, parents: Tensor, *, scale: float = 1.0, leaky: bool = False
) -> tuple[Tensor, Tensor]:
    """Return one agreement step on votes that are not cast, from parents ``[b j e]``.

    Returns:
        poses ``[b j e]``, the votes weighted by couplings, and the couplings ``[b i j]``: softmax
        over parents of scale times vote . parent. ``leaky`` adds a logit of zero for no parent.
    """
    poses, weight, bias, window = operands(votes)
    attended, couplings, _ = _attend(poses, weight, bias, parents, window, scale, leaky)
    return attended, couplings


def backward_shapes(
    poses: Tensor, weight: Tensor, bias: Tensor | None, parents: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Return empty gradients of child poses, weight and parents."""
    return (
        poses.new_empty(poses.shape),
        weight.new_empty(weight.shape),
        parents.new_empty(parents.shape),
    )


@operator("torchcaps::attend_backward", shapes=backward_shapes)
def _attend_backward(
    poses: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    parents: Tensor,
    packed: Tensor,
    couplings: Tensor,
    d_poses: Tensor,
    d_couplings: Tensor | None,
    window: list[int],
    scale: float,
    leaky: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    from torchcaps.kernels.attend.launch import attend_backward

    layout = layout_of(poses, weight, bias, window, packed=packed)
    return attend_backward(layout, parents, couplings, d_poses, d_couplings, scale, leaky)


def _shapes(
    poses: Tensor, weight: Tensor, bias: Tensor | None, parents: Tensor, window: list[int], *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    n_children = window[0] * window[1] * poses.shape[3]
    couplings = poses.new_empty(parents.shape[0], n_children, weight.shape[1])
    packed = weight.new_empty(packed_weight_shape(weight.shape, poses.dtype))
    return poses.new_empty(parents.shape), couplings, packed


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.window, ctx.scale, ctx.leaky = inputs
    ctx.set_materialize_grads(False)  # unused couplings have no gradient to read
    _, couplings, packed = output
    ctx.mark_non_differentiable(packed)
    ctx.save_for_backward(*tensors, packed, couplings)


def _backward(
    ctx: Any, d_poses: Tensor | None, d_couplings: Tensor | None, _: Tensor | None
) -> tuple[Any, ...]:
    poses, _, _, parents, *_ = ctx.saved_tensors
    if d_poses is None:
        d_poses = poses.new_zeros(parents.shape)
    if d_couplings is not None:
        d_couplings = d_couplings.contiguous()
    d_children, d_weight, d_parents = _attend_backward(
        *ctx.saved_tensors, d_poses, d_couplings, ctx.window, ctx.scale, ctx.leaky
    )
    return d_children, d_weight, None, d_parents, None, None, None


@operator("torchcaps::attend", shapes=_shapes, save=_save, backward=_backward)
def _attend(
    poses: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    parents: Tensor,
    window: list[int],
    scale: float,
    leaky: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return poses, couplings, and the weight as kernels read it, for the gradient."""
    from torchcaps.kernels.attend.launch import attend_forward

    layout = layout_of(poses, weight, bias, window)
    return *attend_forward(layout, parents, scale, leaky), layout.packed_weight

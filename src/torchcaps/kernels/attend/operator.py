"""Fused agreement as a PyTorch operator: autograd, compilation, export, CUDA graphs."""

import functools
import importlib.util
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, library
from torch._library.custom_ops import CustomOpDef
from torch.autograd import forward_ad

from torchcaps.votes import Votes, Window

if TYPE_CHECKING:
    from torchcaps.kernels.common.layout import Layout

__all__ = [
    "attend",
    "exporting",
    "interpreted",
    "layout_of",
    "lowered",
    "machine_obstacle",
    "obstacle",
    "on_gpu",
    "operands",
    "operator",
    "power",
    "precision",
    "size_obstacle",
]

WHOLE = Window((1, 1))
TRITON = importlib.util.find_spec("triton") is not None


def power(n: int) -> int:
    """The next power of two."""
    return 1 << (n - 1).bit_length()


def machine_obstacle() -> str | None:
    """Why no kernel runs on this machine at the moment, if so."""
    if not interpreted():
        if not torch.cuda.is_available():
            return "there is no CUDA device"
        if torch.cuda.get_device_capability() < (8, 0):
            return "the GPU is older than compute capability 8.0"
    if not TRITON:
        return "Triton is not installed"
    # an operator of our own would give tangents of zero, without a word
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return "torch.func and forward-mode gradients see PyTorch's own operators only"
    return None


def exporting() -> bool:
    """Whether ``torch.export`` traces, for which a batch is any size.

    The flag itself: ``torch.compiler.is_exporting()`` says yes inside ``torch.compile`` too on
    torch 2.11 (https://github.com/pytorch/pytorch/issues/176347).
    """
    return bool(getattr(torch.compiler, "_is_exporting_flag", False))


def on_gpu(tensor: Tensor) -> bool:
    """Whether a tensor is where kernels run; in Triton's interpreter that is everywhere."""
    return tensor.device.type == "cuda" or (interpreted() and tensor.device.type == "cpu")


def size_obstacle(n_parents: int, d_parent: int) -> str | None:
    """Why parents of this size have no kernel, if so; the shape of the weights may add to it."""
    if n_parents > 512 or d_parent > 512:
        return f"{n_parents} parents with poses of {d_parent} are too many for one tile"
    return machine_obstacle()


def obstacle(votes: Votes | Tensor, *, scaled: bool = False, image: bool = False) -> str | None:
    """Why votes have no kernel, if so, in words that finish "cannot run because".

    Args:
        votes: what is to be routed.
        scaled: whether the kernel takes votes with any scale and bias, learned or not.
        image: whether the kernel lets parents of different windows compete.
    """
    if isinstance(votes, Tensor):
        return "the votes are dense already"
    why = size_obstacle(*votes.shape[2:])
    if why is not None:
        return why
    if not on_gpu(votes.poses):
        return f"the votes are on {votes.poses.device.type}, not on a GPU"
    if not image and votes.child is not None:
        return "parents of different windows compete"
    if not scaled and votes.scale is not None:
        return "the votes have a scale"
    bias = None if scaled else votes.bias
    if bias is not None and (bias.requires_grad or bias.dim() != 3 or bias.shape[1] != 1):
        return "the votes have a bias that is learned or differs between parents"
    if precision(votes) not in (torch.float32, torch.bfloat16):
        return f"the child poses are {precision(votes)}, not float32 or bfloat16"
    _, j, q, r = votes.weight.shape
    most = 512 if precision(votes) == torch.bfloat16 else 256
    if power(r) * power(j) > most or power(votes.rows) > 16 or power(q) > 64:
        return (
            f"{j} parents with poses of {votes.rows}x{r} from rows of {q} are too many for one tile"
        )
    return _scaled_obstacle(votes, most // 4) if scaled else None


def _scaled_obstacle(votes: Votes, most: int) -> str | None:
    """Why votes that may have a scale have no kernel: rows of poses are kept apart if they do."""
    q, r = votes.weight.shape[2:]
    if power(r) > 128:
        return f"rows of {r} numbers in the poses of the parents are too large"
    learned = votes.scale is not None or (votes.bias is not None and votes.bias.requires_grad)
    if learned and power(votes.rows) * power(q + 1) > most:
        return f"poses of {votes.rows}x{q} with a scale or a learned bias are too large"
    return None


def lowered(votes: Votes) -> Votes:
    """Votes whose poses and weights are in the precision of autocast, if that is on."""
    dtype = precision(votes)
    weight = votes.weight.to(dtype)
    return Votes(votes.poses.to(dtype), weight, votes.scale, votes.bias, votes.child, votes.window)


def attend(
    votes: Votes, parents: Tensor, *, scale: float = 1.0, leaky: bool = False
) -> tuple[Tensor, Tensor]:
    """One agreement step on votes that are not cast, from parents ``[b j e]``.

    Returns:
        poses ``[b j e]``, the votes weighed by couplings, and these ``[b i j]``: softmax over
        parents of scale times vote . parent; ``leaky`` adds a logit of zero that leads nowhere.
    """
    poses, weight, bias, window = operands(votes)
    out: tuple[Tensor, Tensor] = _attend(poses, weight, bias, parents, window, scale, leaky)
    return out


def operands(votes: Votes) -> tuple[Tensor, Tensor, Tensor | None, list[int]]:
    """Poses ``[b h w t d]``, weight, bias ``[i e]`` and windows, as the operators take them."""
    votes = lowered(votes)
    poses, bias = votes.poses, votes.bias
    if votes.window is None:
        poses = poses[:, None, None]
    if poses.stride(-1) != 1:
        poses = poses.contiguous()
    if bias is not None:
        # one that was broadcast has no strides, and kernels read it as if it were whole
        bias = bias.expand(votes.shape[1], 1, votes.shape[3])[:, 0].contiguous()
    return poses, votes.weight, bias, [n for side in votes.window or WHOLE for n in side]


def precision(votes: Votes) -> torch.dtype:
    """What votes are multiplied in: what autocast says, if it is on."""
    device = votes.poses.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return votes.poses.dtype


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def layout_of(poses: Tensor, weight: Tensor, window: list[int]) -> "Layout":
    """Votes as the kernels see them."""
    from torchcaps.kernels.common.layout import Layout

    kernel_h, kernel_w, step_h, step_w, pad_h, pad_w = window
    return Layout(poses, weight, (kernel_h, kernel_w), (step_h, step_w), (pad_h, pad_w))


def operator(name: str) -> Callable[[Callable[..., Any]], CustomOpDef]:
    """A PyTorch operator that works on the GPU of its first tensor.

    Triton launches on the current GPU, whichever one the tensors are on.
    """

    def made(function: Callable[..., Any]) -> CustomOpDef:
        @functools.wraps(function)
        def there(first: Tensor, *rest: Any, **options: Any) -> Any:
            with torch.cuda.device_of(first):
                return function(first, *rest, **options)

        return library.custom_op(name, there, mutates_args=())

    return made


@operator("torchcaps::attend")
def _attend(
    poses: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    parents: Tensor,
    window: list[int],
    scale: float,
    leaky: bool,
) -> tuple[Tensor, Tensor]:
    from torchcaps.kernels.attend.launch import attend_forward

    return attend_forward(layout_of(poses, weight, window), parents, bias, scale, leaky)


@_attend.register_fake
def _(
    poses: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    parents: Tensor,
    window: list[int],
    scale: float,
    leaky: bool,
) -> tuple[Tensor, Tensor]:
    n_children = window[0] * window[1] * poses.shape[3]
    couplings = poses.new_empty(parents.shape[0], n_children, weight.shape[1])
    return poses.new_empty(parents.shape), couplings


@operator("torchcaps::attend_backward")
def _attend_backward(
    poses: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    parents: Tensor,
    couplings: Tensor,
    d_poses: Tensor,
    d_couplings: Tensor | None,
    window: list[int],
    scale: float,
    leaky: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    from torchcaps.kernels.attend.launch import attend_backward

    layout = layout_of(poses, weight, window)
    return attend_backward(layout, parents, couplings, d_poses, d_couplings, bias, scale, leaky)


@_attend_backward.register_fake
def _(
    poses: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    parents: Tensor,
    couplings: Tensor,
    d_poses: Tensor,
    d_couplings: Tensor | None,
    window: list[int],
    scale: float,
    leaky: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        poses.new_empty(poses.shape),
        weight.new_empty(weight.shape),
        parents.new_empty(parents.shape),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    poses, weight, bias, parents, window, scale, leaky = inputs
    ctx.set_materialize_grads(False)  # couplings nobody uses have no gradient to read
    ctx.save_for_backward(poses, weight, bias, parents, output[1])
    ctx.window, ctx.scale, ctx.leaky = window, scale, leaky


def _backward(ctx: Any, d_poses: Tensor | None, d_couplings: Tensor | None) -> tuple[Any, ...]:
    poses, weight, bias, parents, couplings = ctx.saved_tensors
    if d_poses is None:
        d_poses = poses.new_zeros(parents.shape)
    if d_couplings is not None:
        d_couplings = d_couplings.contiguous()
    saved = (poses, weight, bias, parents, couplings)
    d_children, d_weight, d_parents = _attend_backward(
        *saved, d_poses, d_couplings, ctx.window, ctx.scale, ctx.leaky
    )
    return d_children, d_weight, None, d_parents, None, None, None


_attend.register_autograd(_backward, setup_context=_save)

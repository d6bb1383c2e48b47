"""One agreement step in plain PyTorch, a chunk of windows at a time, where no kernel runs.

This is the function of :func:`torchcaps.kernels.attend` as another operator. The votes of a chunk
are cast, used and freed, and cast once more for the gradient. A chunk fits the cache of a CPU, or a
fraction of a GPU's memory. Votes are ``[t k b e j]`` with the parent innermost, so that casting is
one batched matrix product without a copy before or after.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.kernels.attend.operator import backward_shapes
from torchcaps.kernels.common.operators import operator
from torchcaps.kernels.gate import is_exporting, precision
from torchcaps.tensors import full_precision
from torchcaps.votes import Votes

CPU_CHUNK, GPU_CHUNK = 2**21, 2**27
"""Numbers in the votes of a chunk."""

MAX_GPU_BYTES = 3 * 2**29
"""Largest size of votes that a GPU casts at once, which is faster there: chunks save memory."""


def worth_chunking(votes: Votes | Tensor) -> bool:
    """Return whether chunks of votes are faster, on a CPU, or save much memory, on a GPU."""
    if isinstance(votes, Tensor) or votes.scale is not None or votes.child is not None:
        return False
    if is_exporting():
        return False
    if votes.bias is not None and (votes.bias.requires_grad or votes.bias.dim() != 3):
        return False
    b, i, j, e = votes.shape
    if votes.poses.device.type == "cpu":
        return b * i * j * e > 2 * CPU_CHUNK
    halves = precision(votes) in (torch.bfloat16, torch.float16)
    return b * i * j * e * (2 if halves else 4) > MAX_GPU_BYTES


def attend_in_chunks(
    votes: Votes, parents: Tensor, *, scale: float = 1.0, leaky: bool = False
) -> tuple[Tensor, Tensor]:
    """Return poses ``[b j e]``, couplings ``[b i j]``; see :func:`torchcaps.kernels.attend`."""
    bias = None if votes.bias is None else votes.bias.detach()
    children = votes.children()
    weight = votes.weight.to(children.dtype)
    out: tuple[Tensor, Tensor] = _attend(children, weight, bias, parents, scale, leaky)
    return out


def _chunk(poses: Tensor) -> int:
    return CPU_CHUNK if poses.device.type == "cpu" else GPU_CHUNK


class _Chunks:
    """Votes of ranges of windows, cast on request, in float32 at least."""

    def __init__(self, poses: Tensor, weight: Tensor, bias: Tensor | None, parents: Tensor) -> None:
        self.dtype = torch.promote_types(poses.dtype, torch.float32)
        self.t, self.j, self.q, self.r = weight.shape
        self.n, self.i, d = poses.shape
        self.p = d // self.q
        self.poses, self.parents, self.bias = poses, parents, bias
        self.weight = weight.to(self.dtype).permute(0, 2, 3, 1).reshape(self.t, self.q, -1)

    def ranges(self) -> Iterator[slice]:
        size = max(1, _chunk(self.poses) // (self.i * self.j * self.p * self.r))
        return (slice(start, start + size) for start in range(0, self.n, size))

    def rows(self, part: slice) -> Tensor:
        """Return child poses ``[t (k b p) q]``."""
        poses = self.poses[part].to(self.dtype).view(-1, self.i // self.t, self.t, self.p, self.q)
        return poses.permute(2, 1, 0, 3, 4).reshape(self.t, -1, self.q)

    def cast(self, rows: Tensor) -> Tensor:
        """Return votes ``[t k b e j]``."""
        votes = torch.bmm(rows, self.weight).view(
            self.t, self.i // self.t, -1, self.p * self.r, self.j
        )
        if self.bias is not None:
            bias = self.bias.to(self.dtype).expand(self.i, -1, self.p * self.r)
            votes += bias.unflatten(0, (-1, self.t)).permute(1, 0, 3, 2)[:, :, None]
        return votes

    def pack(self, parents: Tensor) -> Tensor:
        """Return ``[b j e]`` as ``[b e j]``."""
        return parents.to(self.dtype).transpose(1, 2)

    def pair(self, couplings: Tensor) -> Tensor:
        """Return ``[b i j]`` as ``[t k b 1 j]``."""
        pairs = couplings.to(self.dtype).reshape(-1, self.i // self.t, self.t, self.j)
        return pairs.permute(2, 1, 0, 3)[..., None, :].contiguous()

    def unpair(self, pairs: Tensor) -> Tensor:
        """Return ``[t k b j]`` as ``[b i j]``."""
        n, j = pairs.shape[2:]
        return pairs.permute(2, 1, 0, 3).reshape(n, self.i, j)


def _forward(chunks: _Chunks, scale: float, leaky: bool) -> tuple[Tensor, Tensor]:
    poses, parents = chunks.poses, chunks.parents
    out = poses.new_empty(parents.shape)
    couplings = poses.new_empty(chunks.n, chunks.i, chunks.j)
    for part in chunks.ranges():
        votes = chunks.cast(chunks.rows(part))
        logits = (votes * chunks.pack(parents[part])).sum(dim=3) * scale
        shares = F.pad(logits, (1, 0)).softmax(dim=-1)[..., 1:] if leaky else logits.softmax(dim=-1)
        couplings[part] = chunks.unpair(shares)
        out[part] = votes.mul_(shares[..., None, :]).sum(dim=(0, 1)).transpose(1, 2)
    return out, couplings


def _gradients(
    chunks: _Chunks, couplings: Tensor, d_poses: Tensor, d_couplings: Tensor | None, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    poses, parents = chunks.poses, chunks.parents
    d_children = poses.new_empty(poses.shape)
    d_weight = torch.zeros_like(chunks.weight)
    d_parents = parents.new_empty(parents.shape)
    transposed = chunks.weight.transpose(1, 2)
    for part in chunks.ranges():
        rows, c = chunks.rows(part), chunks.pair(couplings[part])
        votes = chunks.cast(rows)
        d_sum, parent = chunks.pack(d_poses[part]), chunks.pack(parents[part])
        d_c = (votes * d_sum).sum(dim=3, keepdim=True)
        if d_couplings is not None:
            d_c += chunks.pair(d_couplings[part])
        d_logits = scale * c * (d_c - (c * d_c).sum(dim=-1, keepdim=True))
        d_parents[part] = votes.mul_(d_logits).sum(dim=(0, 1)).transpose(1, 2)
        d_votes = torch.mul(c, d_sum, out=votes).addcmul_(d_logits, parent)
        d_votes = d_votes.view(chunks.t, -1, chunks.r * chunks.j)
        d_weight.baddbmm_(rows.transpose(1, 2), d_votes)
        d_rows = torch.bmm(d_votes, transposed)
        d_rows = d_rows.view(chunks.t, chunks.i // chunks.t, -1, chunks.p, chunks.q)
        d_children[part] = d_rows.permute(2, 1, 0, 3, 4).reshape(-1, *poses.shape[1:])
    d_weight = d_weight.view(chunks.t, chunks.q, chunks.r, chunks.j).permute(0, 3, 1, 2)
    return d_children, d_weight, d_parents


@operator("torchcaps::attend_in_chunks_backward", shapes=backward_shapes)
def _attend_backward(
    poses: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    parents: Tensor,
    couplings: Tensor,
    d_poses: Tensor,
    d_couplings: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    with full_precision(poses.device):
        chunks = _Chunks(poses, weight, bias, parents)
        d_children, d_weight, d_parents = _gradients(chunks, couplings, d_poses, d_couplings, scale)
        return d_children, weight.new_empty(weight.shape).copy_(d_weight), d_parents


def _shapes(
    poses: Tensor, weight: Tensor, bias: Tensor | None, parents: Tensor, *_: Any
) -> tuple[Tensor, Tensor]:
    couplings = poses.new_empty(*poses.shape[:2], weight.shape[1])
    return poses.new_empty(parents.shape), couplings


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale, _ = inputs
    ctx.save_for_backward(*tensors, output[1])


def _backward(ctx: Any, d_poses: Tensor | None, d_couplings: Tensor | None) -> tuple[Any, ...]:
    poses, _, _, parents, _ = ctx.saved_tensors
    if d_poses is None:
        d_poses = poses.new_zeros(parents.shape)
    d_children, d_weight, d_parents = _attend_backward(
        *ctx.saved_tensors, d_poses, d_couplings, ctx.scale
    )
    return d_children, d_weight, None, d_parents, None, None


@operator("torchcaps::attend_in_chunks", shapes=_shapes, save=_save, backward=_backward)
def _attend(
    poses: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    parents: Tensor,
    scale: float,
    leaky: bool,
) -> tuple[Tensor, Tensor]:
    with full_precision(poses.device):
        return _forward(_Chunks(poses, weight, bias, parents), scale, leaky)

"""Compile the kernels for compute capability 9.0 without a GPU, as the launch code calls them.

Tensors are on the meta device and nothing runs. Prints what each kernel takes. With the argument
"all", shapes of published networks are compiled; otherwise one small shape per kernel.
"""

import importlib
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from torchcaps import kernels
from torchcaps.kernels.attend.launch import attend_backward, attend_forward
from torchcaps.kernels.common.layout import Layout
from torchcaps.kernels.convolution.launch import wide_conv
from torchcaps.kernels.elementwise import launch as elementwise
from torchcaps.kernels.moments.launch import Moments, moments_backward, moments_forward
from torchcaps.kernels.norm.launch import norm_backward, norm_forward
from torchcaps.kernels.pairwise.launch import (
    AffineVotes,
    pairwise_backward,
    pairwise_links,
    pairwise_sums,
    weighted_total,
)

MAX_SHARED_BYTES = 227 * 1024
MAX_STACK_BYTES = 16
LOW, WIDE = torch.bfloat16, torch.float32
Window = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
THREE: Window = ((3, 3), (2, 2), (0, 0))
TWO: Window = ((2, 2), (1, 1), (0, 0))
HEAD: Window = ((7, 7), (1, 1), (0, 0))
ONE: Window = ((3, 3), (1, 1), (0, 0))
ROW: Window = ((1, 1), (1, 1), (0, 0))


class Target:
    """A GPU of compute capability 9.0, as far as Triton asks before it launches."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def compiled(calls: dict[str, Callable[[], object]]) -> Iterator[tuple[str, str, Any]]:
    """Yield the name of each call, and names and code of the kernels that it would launch."""
    built: list[tuple[str, Any]] = []
    run = JITFunction.run

    def compile_only(self: Any, *arguments: Any, warmup: bool, **options: Any) -> None:
        built.append((self.__name__, run(self, *arguments, warmup=True, **options)))

    triton.runtime.driver.set_active(Target())
    for name, call in calls.items():
        built.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(JITFunction, "run", compile_only)
            call()
        assert built, f"{name} launches nothing"
        for kernel, code in built:
            assert code.metadata.shared <= MAX_SHARED_BYTES, f"{kernel}: {code.metadata.shared}"
            product = "wgmma" if "wgmma" in code.asm["ptx"] else "no matrix product"
            sys.stdout.write(f"{name}, {kernel}: {code.metadata.shared} bytes, {product}\n")
            yield name, kernel, code.asm


def all_kernels() -> set[str]:
    """Return the names of all kernels of the package."""
    names = set()
    for info in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}."):
        module = importlib.import_module(info.name)
        names |= {name for name, x in vars(module).items() if isinstance(x, JITFunction)}
    return {name for name in names if name.endswith("_kernel")}


def empty(*shape: int, dtype: torch.dtype = WIDE) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def layout(
    grid: tuple[int, ...],
    weight: tuple[int, ...],
    window: Window,
    dtype: torch.dtype,
    *,
    biased: bool = False,
) -> Layout:
    """Return votes from poses of shape ``grid`` and weights of shape ``weight``."""
    poses, packed = empty(*grid, dtype=dtype), empty(*weight, dtype=dtype)
    shape = Layout(poses, packed, None, *window)
    bias = empty(shape.n_children, shape.d_parent, dtype=dtype) if biased else None
    return Layout(poses, packed, bias, *window)


def attend(votes: Layout, *, coupled: bool = True) -> None:
    """Launch an agreement step and its gradient."""
    parents = empty(votes.n_windows, votes.n_parents, votes.d_parent, dtype=votes.poses.dtype)
    _, couplings = attend_forward(votes, parents, 0.3, leaky=False)
    d_couplings = couplings if coupled else None
    attend_backward(votes, parents, couplings, parents, d_couplings, 0.3, leaky=False)


def moments(votes: Layout, forms: str, *, image: bool = False) -> None:
    """Launch moments by a form of some of "constant", "linear" and "square", and the gradient."""
    n, i, j, e = votes.n_windows, votes.n_children, votes.n_parents, votes.d_parent
    mass, center = empty(n, j), empty(n, j, e)
    linear, square = (center if name in forms else None for name in ("linear", "square"))
    child = torch.empty(n, i, dtype=torch.long, device="meta") if image else None
    constant = mass if "constant" in forms else None
    inputs = Moments(votes, empty(n, i), center, constant, linear, square, child)
    *_, couplings = moments_forward(inputs)
    d_couplings = couplings if image else None
    moments_backward(inputs, couplings, center, mass, center, center, d_couplings)


def pairwise(votes: Layout, *, affine: bool) -> None:
    """Launch sums and links and their gradients, with a scale and a bias of every vote or none."""
    shape = (votes.n_children, votes.n_parents, votes.d_parent)
    scale, bias = (empty(*shape) if affine else None for _ in range(2))
    scaled = AffineVotes(votes, scale, bias, normalize=True)
    total, squares = pairwise_sums(scaled)
    links = pairwise_links(scaled, total, 0.1).float()
    weighted_total(scaled, links)
    pairwise_backward(scaled, total, squares, None, shifts=affine)
    pairwise_backward(scaled, total, None, links, shifts=affine)


def norm() -> None:
    """Launch LayerNorm over poses of 16 numbers, and its gradient."""
    poses, weight = empty(4096, 16, dtype=LOW), empty(16)
    norm_forward(poses, weight, weight, 1e-5, LOW)
    norm_backward(poses, weight, poses, 1e-5)


def pointwise() -> None:
    """Launch squashing, lengths and the margin loss with both kinds of targets, and gradients."""
    for dtype in (LOW, WIDE):
        poses, scores = empty(4096, 10, 16, dtype=dtype), empty(4096, 10)
        elementwise.squash_gradient(poses, elementwise.squashed(poses, WIDE))
        elementwise.lengths_gradient(poses, elementwise.lengths(poses, WIDE))
    for targets in (torch.empty(4096, dtype=torch.long, device="meta"), scores):
        loss = elementwise.margin(scores, targets, (0.9, 0.1, 0.5))
        elementwise.margin_gradient(scores, targets, loss, (0.9, 0.1, 0.5))


def convolution(*, backward: bool) -> None:
    """Launch the convolution of CapsNet's primary capsules, or the gradient of its input."""
    weight = empty(256, 256, 9, 9, dtype=LOW)
    side, side_out = (6, 20) if backward else (20, 6)
    inputs = empty(128, 256, side, side, dtype=LOW)
    wide_conv(inputs, weight, (2, 2), (0, 0), (side_out, side_out), backward)


def small() -> dict[str, Callable[[], object]]:
    """Return calls that launch every kernel at least once."""
    votes = layout((4, 5, 5, 8, 16), (72, 8, 4, 4), THREE, LOW)
    exact = layout((4, 5, 5, 8, 16), (72, 8, 4, 4), THREE, WIDE)
    return {
        "attend": partial(attend, votes),
        "attend, many parents": partial(
            attend, layout((4, 2, 2, 8, 16), (32, 140, 4, 4), TWO, LOW)
        ),
        "moments, uniform": partial(moments, votes, ""),
        "moments": partial(moments, votes, "constant square", image=True),
        "moments, float32": partial(moments, exact, "constant linear"),
        "pairwise": partial(pairwise, votes, affine=True),
        "norm": norm,
        "pointwise": pointwise,
        "convolution": partial(convolution, backward=False),
        "convolution, backward": partial(convolution, backward=True),
    }


def published() -> dict[str, Callable[[], object]]:
    """Return calls with the shapes of published networks and of heads."""
    calls: dict[str, Callable[[], object]] = {}
    for dtype in (LOW, WIDE):
        four = layout((8, 14, 14, 32, 16), (288, 32, 4, 4), THREE, dtype)
        six = layout((8, 7, 7, 32, 36), (288, 32, 6, 6), THREE, dtype)
        ten = layout((8, 14, 14, 32, 16), (288, 10, 4, 4), THREE, dtype)
        for name, votes in (("4x4", four), ("6x6", six)):
            label = f"{name}, {dtype}"
            calls[f"attend, {label}"] = partial(attend, votes, coupled=False)
            for forms in ("", "constant linear", "constant square"):
                calls[f"moments {forms}, {label}"] = partial(moments, votes, forms)
            calls[f"moments of images, {label}"] = partial(
                moments, votes, "constant square", image=True
            )
        calls[f"moments, 10 parents, {dtype}"] = partial(moments, ten, "")
        calls[f"moments square, 10 parents, {dtype}"] = partial(moments, ten, "constant square")
        for affine in (False, True):
            calls[f"pairwise, {affine}, {dtype}"] = partial(pairwise, four, affine=affine)
    for side in (2, 4):
        # the widest tiles: 100 classes, with coordinates as a bias
        head = layout((4, 7, 7, 32, side**2), (32, 100, side, side), HEAD, LOW, biased=True)
        calls[f"head of 100 classes, {side}x{side}"] = partial(attend, head)
    return calls | many_parents() | small()


def many_parents() -> dict[str, Callable[[], object]]:
    """Return calls with parents of several tiles: a head, and vector poses of 64 numbers."""
    calls: dict[str, Callable[[], object]] = {}
    for dtype in (LOW, WIDE):
        votes = {
            "head of 1000": layout((256, 7, 7, 32, 16), (32, 1000, 4, 4), HEAD, dtype, biased=True),
            "vectors": layout((128, 8, 8, 16, 64), (144, 16, 64, 64), ONE, dtype),
            "digits": layout((256, 1, 1, 576, 64), (576, 10, 64, 64), ROW, dtype),
        }
        for name, one in votes.items():
            for coupled in (False, True):
                label = f"{name}, {dtype}, {coupled}"
                calls[label] = partial(attend, one, coupled=coupled)
    return calls


def stack_bytes(cubin: bytes) -> int:
    """Return the stack of a kernel in bytes: what spilled registers take, above all."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        tool = triton.knobs.nvidia.cuobjdump.path
        usage = subprocess.check_output([tool, "-res-usage", file.name], text=True)
    (stack,) = re.findall(r"STACK:(\d+)", usage)
    return int(stack)


def check_spills() -> None:
    """Check that kernels for parents of several tiles hardly spill registers."""
    for name, kernel, code in compiled(many_parents()):
        spilled = stack_bytes(code["cubin"])
        assert spilled <= MAX_STACK_BYTES, f"{name}, {kernel}: {spilled} bytes of stack"


def check_reads() -> None:
    """Check that poses whose size 16 does not divide are not read two bytes at a time."""
    for rows, columns in ((1, 8), (6, 6)):
        weight = (1152, 10, columns, columns)
        votes = layout((64, 1, 1, 1152, rows * columns), weight, ROW, LOW)
        for _, kernel, code in compiled({f"{rows}x{columns}": partial(attend, votes)}):
            assert kernel != "attend_kernel" or "ld.global.b16" not in code["ptx"]


def main() -> None:
    """Compile what the argument asks for."""
    everything = sys.argv[1:] == ["all"]
    codes = list(compiled(published() if everything else small()))
    names = {kernel for _, kernel, _ in codes}
    assert names == all_kernels(), f"not compiled: {all_kernels() - names}"
    assert all("wgmma" in code["ptx"] for _, kernel, code in codes if kernel == "wide_conv_kernel")
    if everything:
        check_reads()
        check_spills()


if __name__ == "__main__":
    main()

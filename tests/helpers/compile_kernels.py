"""Compile every kernel for compute capability 9.0 without a GPU; prints what each one takes."""

import sys
from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from torchcaps.kernels.attend.backward import child_kernel, fold_kernel, weight_kernel
from torchcaps.kernels.attend.forward import attend_kernel
from torchcaps.kernels.attend.launch import child_stages, weight_stages
from torchcaps.kernels.common.layout import Layout
from torchcaps.kernels.convolution.kernel import wide_conv_kernel
from torchcaps.kernels.moments.backward import gaussian_child_kernel, gaussian_weight_kernel
from torchcaps.kernels.moments.forward import moments_kernel
from torchcaps.kernels.moments.products import product_child_kernel, product_weight_kernel
from torchcaps.kernels.moments.uniform import (
    uniform_child_kernel,
    uniform_moments_kernel,
    uniform_weight_kernel,
)
from torchcaps.kernels.norm.kernel import pose_norm_backward_kernel, pose_norm_kernel
from torchcaps.kernels.pairwise.backward import pairwise_child_kernel, pairwise_weight_kernel
from torchcaps.kernels.pairwise.forward import pairwise_kernel

MOST = 227 * 1024
WIDE_CONV = {"stride": 2, "pad": 0, "k": 9}
PLACES: dict[str, Any] = {"width_k": 3, "n_types": 32, "padded": False}
SIZES: dict[str, Any] = {
    "n_parents": 32,
    "j_pad": 32,
    "operand": tl.bfloat16,
    "precision": "tf32x3",
}
SIZES |= {f"{letter}_size": 4 for letter in "pqr"} | {"p_pad": 4, "r_pad": 4}
WIDE = SIZES | {f"{letter}_size": 6 for letter in "pqr"} | {"p_pad": 8, "r_pad": 8}
LOW: tuple[str, ...] = (
    "poses",
    "weight",
    "parents",
    "gradient",
    "couplings",
    "shares",
    "logits",
    "d_poses",
    "grid",
)
FORMS = ("linear", "linear_rest", "linear_logits", "square", "square_rest", "square_logits")
ALL_LOW: tuple[str, ...] = (*LOW, *FORMS, "squares", "squares_rest")
NUMBERS = ["n_windows", "n_children", "n_part", "tiles", "height", "width", "size"]
NUMBERS += ["height_out", "width_out", "area_out", "n_rows", "blocks", "n_images"]
WHOLE = [["tt.divisibility", 16]]


def build(
    kernel: Any,
    absent: tuple[str, ...],
    warps: int,
    depth: int,
    values: Any,
    low: tuple[str, ...] = LOW,
) -> str:
    """Compile with pointers for what is neither a value to compile in nor a number.

    Pointers, strides of the grid and numbers of children are multiples of 16, as in the networks.
    """
    if "p_size" in values:
        values = {"stride_t": values["p_size"] * values["q_size"]} | values
    signature: dict[str, Any] = {}
    given: dict[tuple[int, ...], Any] = {}
    hints: dict[tuple[int, ...], Any] = {}
    low = () if values.get("operand") == tl.float32 else low
    for index, name in enumerate(kernel.arg_names):
        if name in values or name in absent:
            signature[name] = "constexpr"
            given[(index,)] = values.get(name)
        elif name == "geometry":
            signature[name] = ("i32",) * 7
            hints |= {(index, place): WHOLE for place in range(3)}
        elif name == "spans":
            signature[name] = ("i32",) * 3
        elif name in ("scale", "eps", "factor"):
            signature[name] = "fp32"
        elif name == "order":
            signature[name] = "*i32"
        elif name in NUMBERS:
            signature[name] = "i32"
            hints |= {(index,): WHOLE} if name in ("n_children", "n_part") else {}
        else:
            signature[name] = "*bf16" if name in low else "*fp32"
            hints[(index,)] = WHOLE
    source = ASTSource(kernel, signature, given, hints)
    options = {"num_warps": warps, "num_stages": depth}
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    code: str = built.asm["ptx"]
    product = "wgmma" if "wgmma" in code else "no matrix product"
    sys.stdout.write(f"{kernel.__name__}: {built.metadata.shared} bytes, {product}\n")
    assert built.metadata.shared <= MOST, "more shared memory than there is"
    return code


def main() -> None:
    """Compile all."""
    common = {"has_bias": False, "stages": 4, "n_weights": 288, "q_pad": 16, "has_gradient": False}
    for sizes, warps in ((SIZES, 4), (WIDE, 8)):
        attend = sizes | PLACES | common | {"leaky": False, "groups": warps // 4}
        absent: tuple[str, ...] = ("bias", "gradient", "logits")
        build(attend_kernel, absent, warps, 3, attend | {"backward": False})
        build(attend_kernel, absent[:2], warps, 3, attend | {"backward": True})
        small = sizes | common | {"q_pad": warps, "block": 16 // warps}
        build(child_kernel, (), warps, 3, small)
        build(child_kernel, (), warps, 3, small | {"operand": tl.float32, "precision": "ieee"})
        where = {"width_out": 7, "area_out": 49}
        build(weight_kernel, (), warps, 3, small | PLACES | where)
    for side in (2, 4):
        _head(side)
    for shape in ((1, 8), (6, 6)):
        _read_ahead(*shape)
    for apart in (False, True):
        _pairwise(SIZES, apart)
        _pairwise(SIZES | {"operand": tl.float32, "precision": "ieee"}, apart)
    for uniform in (False, True):
        form = SIZES | PLACES | common | {"uniform": uniform, "coupled": False, "groups": 2}
        form |= {"surveyed": False, "survey": False}
        absent = ("bias", "gradient", "slot_sums")
        both = {"has_linear": True, "has_square": True}
        build(moments_kernel, absent, 8, 3, form | both | {"backward": True})
        for linear in (False,) if uniform else (False, True):
            has = {"has_linear": linear, "has_square": not (linear or uniform)}
            absent = ("bias", "gradient", "logits", "d_activations", "slot_sums")
            absent += ("constant",) if uniform else ()
            absent += tuple(name for name in ("linear", "square") if not has[f"has_{name}"])
            build(moments_kernel, absent, 8, 3, form | has | {"backward": False})
            names = (f"{name}_logits" for name in ("linear", "square") if not has[f"has_{name}"])
            absent = ("bias", *names)
            build(gaussian_child_kernel, absent, 8, 3, form | has)
            build(gaussian_weight_kernel, absent, 8, 2, form | has | {"q_pad": 4, "block": 4})
    for low in (SIZES, SIZES | {"operand": tl.float32}):
        _image(low | PLACES | common | {"uniform": False, "coupled": False, "groups": 2})
    for n_parents, warps in ((32, 8), (10, 4)):
        few = {"n_parents": n_parents, "j_pad": 4 * warps}
        products = SIZES | PLACES | {"n_weights": 288, "block": 4} | few
        build(uniform_moments_kernel, (), 4, 3, products | {"stages": 2}, ALL_LOW)
        build(uniform_child_kernel, (), 4, 3, products | {"stages": 1}, ALL_LOW)
        build(uniform_weight_kernel, (), warps, 2, products, ALL_LOW)
        build(product_child_kernel, (), 4, 3, products | {"stages": 2, "block": 2}, ALL_LOW)
        build(product_weight_kernel, (), warps, 3, products, ALL_LOW)
    sides = {f"{name}_{side}": 2 for name in ("kernel", "step", "pad") for side in "hw"}
    build(fold_kernel, (), 4, 3, sides | {"entries": 512, "block": 1024})
    rows = {"d": 16, "d_pad": 16, "rows": 256}
    build(pose_norm_kernel, (), 4, 3, rows)
    build(pose_norm_backward_kernel, (), 4, 3, rows)
    for back in (False, True):
        _wide_conv(back)


def _image(form: dict[str, Any]) -> None:
    """EM routing in which all parents of a child compete: a survey, then the moments."""
    ways = ({"survey": True, "surveyed": False}, {"survey": False, "surveyed": True})
    for way, kept in zip(ways, (("mass", "first_moment", "second_moment"), ()), strict=True):
        absent = ("bias", "gradient", "logits", "d_activations", "linear", *kept)
        way |= {"backward": False, "has_linear": False, "has_square": True}
        build(moments_kernel, absent, 8, 3, form | way)
        absent = ("bias", "gradient", *(("logits", "d_activations", *kept) if kept else ()))
        build(moments_kernel, absent, 8, 3, form | way | {"backward": True, "has_linear": True})


def _wide_conv(back: bool) -> None:
    """CapsNet's primary capsules."""
    given: dict[str, Any] = {"rows": 128, "columns": 256, "depth": 64, "stages": 3, "back": back}
    given |= {"channels": 256, "channels_out": 256, "operand": tl.bfloat16}
    given |= {f"{name}_{side}": size for name, size in WIDE_CONV.items() for side in "yx"}
    strides = (81 * 256, 1) if back else (1, 81 * 256)
    given |= dict(zip(("stride_in", "stride_out"), strides, strict=True))
    assert "wgmma" in build(wide_conv_kernel, (), 8, 3, given, ("inputs", "weight"))


def _head(side: int) -> None:
    """A capsule head of 100 classes: the widest tiles, with coordinates as a bias."""
    poses = torch.empty(1, 7, 7, 32, side**2, dtype=torch.bfloat16, device="meta")
    weight = torch.empty(32, 100, side, side, dtype=torch.bfloat16, device="meta")
    layout = Layout(poses, weight, (7, 7), (1, 1), (0, 0))
    sizes = layout.sizes() | {"n_weights": 32, "has_gradient": False}
    deep = layout.stages(16 * (64 + layout.columns), biased=True)
    places = PLACES | {"width_k": 7}
    attend = sizes | places | {"has_bias": True, "stages": deep, "q_pad": 16, "leaky": False}
    attend |= {"groups": layout.warps // 4}
    build(attend_kernel, ("gradient", "logits"), layout.warps, 3, attend | {"backward": False})
    build(attend_kernel, ("gradient",), layout.warps, 3, attend | {"backward": True})
    small = sizes | {"q_pad": 4, "block": 4, "stages": child_stages(layout, 4)}
    build(child_kernel, (), layout.warps, 3, small)
    where = {"width_out": 1, "area_out": 1}
    ahead = weight_stages(layout, 4)
    build(weight_kernel, (), layout.warps, ahead, small | places | where)


def _read_ahead(rows: int, columns: int) -> None:
    """Poses of a size that 16 does not divide are read ahead, more than one number at a time."""
    poses = torch.empty(1, 1, 1, 1152, rows * columns, dtype=torch.bfloat16, device="meta")
    weight = torch.empty(1152, 10, columns, columns, dtype=torch.bfloat16, device="meta")
    layout = Layout(poses, weight, (1, 1), (1, 1), (0, 0))
    given = layout.sizes() | PLACES | {"n_weights": 1152, "q_pad": 16, "leaky": False}
    given |= {"has_bias": False, "has_gradient": False, "backward": False}
    given |= {"groups": layout.warps // 4, "stages": 4}
    code = build(attend_kernel, ("bias", "gradient", "logits"), layout.warps, 3, given)
    assert "ld.global.b16" not in code, "poses are read two bytes at a time"


def _pairwise(sizes: dict[str, Any], apart: bool) -> None:
    """Pairwise routing, with a scale and a bias of every vote or of none."""
    given = sizes | PLACES | {"n_weights": 64, "j_tile": 32, "normalize": True, "by_parent": apart}
    given |= {"has_scale": apart, "has_bias": apart}
    none: tuple[str, ...] = () if apart else ("scales", "bias")
    through = given | {"q_pad": 16, "groups": 2, "varied": apart, "stages": 4 - 3 * apart}
    for linked, weighed in ((False, False), (True, False), (False, True)):
        absent = none + (() if linked else ("given",)) + (("squares",) if linked or weighed else ())
        absent += ("total",) if linked else () if weighed else ("links",)
        build(pairwise_kernel, absent, 8, 3, through | {"linked": linked, "weighed": weighed})
    for weighed in (False, True):
        absent = (*none, "square" if weighed else "links")
        build(pairwise_child_kernel, absent, 8, 3, through | {"weighed": weighed})
        shape = {"q_pad": 8 if apart else 16, "j_in": 4, "apart": apart, "weighed": weighed}
        build(pairwise_weight_kernel, absent, 8, 2, given | shape)


if __name__ == "__main__":
    main()

"""Kernels against the plain functions in float64, for the interpreter and for a GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

import torchcaps as tc
from helpers.routings import route, sizes_for
from torchcaps import kernels
from torchcaps.layers.windows import same_child
from torchcaps.routing import RoutingFactory
from torchcaps.votes import Votes, Window

Result = dict[str, Tensor]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def operator_arguments() -> tuple[Tensor, Tensor, Tensor, list[int]]:
    """Return poses, weight, parents and window as an operator takes them, with gradients."""
    poses = torch.randn(2, 4, 4, 2, 8, requires_grad=True)
    weight = torch.randn(8, 3, 4, 2, requires_grad=True)
    return poses, weight, torch.randn(8, 3, 4, requires_grad=True), [2, 2, 2, 2, 0, 0]


@dataclass(frozen=True)
class Case:
    """Votes of one shape: a grid ``[b h w t d]`` and weights ``[i j q r]``."""

    grid: tuple[int, int, int, int, int]
    j: int
    q: int
    r: int
    window: Window | None = None
    shared: bool = False
    biased: bool = False
    leaky: bool = False
    scattered: bool = False
    norm: Literal["entry", "capsule"] | None = None
    image: bool = False

    def inputs(self, dtype: torch.dtype, device: str, seed: int = 0) -> dict[str, Tensor]:
        """Return random tensors that ``dtype`` can hold exactly, in float64."""
        b, h, w, t, d = self.grid
        generator = torch.Generator().manual_seed(seed)
        n, i = b, h * w * t
        if self.window is not None:
            (kh, kw), (sh, sw), (ph, pw) = self.window
            n *= ((h + 2 * ph - kh) // sh + 1) * ((w + 2 * pw - kw) // sw + 1)
            i = kh * kw * t
        e = d // self.q * self.r
        shapes = {
            "poses": self.grid,
            "weight": (t if self.shared else i, self.j, self.q, self.r),
            "parents": (n, self.j, e),
            "bias": (i, 1, e),
            "activations": (n, i),
            "d_poses": (n, self.j, e),
            "d_couplings": (n, i, self.j),
            "scale": (e,) if self.norm == "entry" else (i, self.j, e),
            "shift": (e,) if self.norm == "entry" else (i, self.j, e),
        }
        made = {
            k: torch.randn(s, generator=generator, dtype=torch.float64) for k, s in shapes.items()
        }
        made["weight"] *= 0.5
        made["activations"] = made["activations"].sigmoid()
        return {k: x.to(dtype).double().to(device) for k, x in made.items()}

    def votes(self, inputs: dict[str, Tensor]) -> Votes:
        """Return the votes of these inputs."""
        poses = inputs["poses"]
        if self.scattered:
            poses = poses.permute(0, 4, 3, 1, 2).contiguous().permute(0, 3, 4, 2, 1)
        if self.window is None:
            poses = poses.flatten(1, 3)
        if self.norm is not None:
            return Votes(
                poses, inputs["weight"], inputs["scale"], inputs["shift"], window=self.window
            )
        bias = inputs["bias"].detach() if self.biased else None
        child = self.child(poses.device)
        return Votes(poses, inputs["weight"], bias=bias, child=child, window=self.window)

    def child(self, device: torch.device) -> Tensor | None:
        """Return which slots show one child, if the parents of all of them compete."""
        if not self.image:
            return None
        assert self.window is not None
        (b, h, w, t, _), ((kh, kw), (sh, sw), (ph, pw)) = self.grid, self.window
        size = (b, (h + 2 * ph - kh) // sh + 1, (w + 2 * pw - kw) // sw + 1)
        return same_child(size, (kh, kw), (sh, sw), t, device)


CASES = {
    "one of everything": Case((1, 1, 1, 1, 1), 1, 1, 1),
    "one child": Case((3, 1, 1, 1, 4), 5, 2, 2),
    "one parent": Case((2, 1, 1, 7, 6), 1, 3, 2),
    "linear matrix": Case((2, 1, 1, 21, 16), 10, 4, 4),
    "linear vector": Case((5, 1, 1, 9, 8), 10, 8, 16, leaky=True),
    "shared and biased": Case((3, 3, 2, 4, 16), 5, 4, 4, shared=True, biased=True),
    "windows": Case((2, 5, 5, 3, 16), 6, 4, 4, Window((3, 3), (2, 2))),
    "odd windows": Case((1, 5, 4, 3, 36), 5, 6, 6, Window((3, 2), (1, 2), (1, 1)), leaky=True),
    "shared windows": Case((2, 3, 4, 2, 4), 3, 2, 2, Window((2, 3), (1, 1), (0, 1)), shared=True),
    "few windows": Case((2, 3, 2, 2, 9), 3, 3, 3, Window((2, 2), (1, 2), (1, 0))),
    "scattered": Case((2, 4, 3, 3, 12), 7, 4, 3, Window((2, 3)), scattered=True),
    "no batch": Case((0, 1, 1, 3, 4), 2, 2, 2),
    "many parents": Case((1, 2, 3, 1, 4), 65, 2, 8, Window((2, 2)), biased=True, leaky=True),
    "many parents, shared": Case((2, 2, 2, 2, 16), 131, 4, 4, shared=True, biased=True),
    "many parents, even": Case((3, 1, 1, 9, 8), 160, 2, 4),
    "many parents, one child": Case((70, 1, 1, 1, 6), 300, 2, 2),
    "long poses": Case((3, 1, 1, 5, 40), 11, 40, 50),
    "long windows": Case((1, 4, 3, 2, 64), 9, 64, 64, Window((2, 2), (1, 1), (1, 0)), leaky=True),
}
IMAGE = {
    "side by side": Case((2, 4, 3, 2, 9), 3, 3, 3, Window((2, 2)), image=True),
    "padded": Case((1, 3, 3, 1, 16), 5, 4, 4, Window((3, 3), (1, 1), (1, 1)), image=True),
    "strides": Case((2, 5, 5, 1, 16), 3, 4, 4, Window((3, 3), (2, 2)), image=True),
    "padded strides": Case(
        (2, 4, 4, 1, 4), 3, 2, 2, Window((3, 3), (2, 2), (1, 1)), image=True, biased=True
    ),
}
"""Votes of children that several windows show, whose parents all compete."""

SCALED = {
    "per entry": Case((3, 1, 1, 7, 16), 10, 4, 4, norm="entry"),
    "per capsule": Case((2, 3, 4, 2, 6), 5, 3, 3, Window((2, 3), (1, 1), (0, 1)), norm="capsule"),
    "vectors": Case((5, 1, 1, 9, 8), 10, 8, 16, norm="entry"),
    "two blocks of parents": Case((3, 3, 1, 2, 4), 37, 2, 3, shared=True, norm="capsule"),
    "scattered": Case((2, 4, 3, 3, 12), 7, 4, 3, Window((2, 3)), scattered=True, norm="entry"),
}
"""Votes with a learned scale and bias, as batch normalization makes them."""


def agreement(case: Case, dtype: torch.dtype, device: str, *, fused: bool) -> Result:
    """Return one agreement step and the gradients of its inputs."""
    wanted = ("poses", "weight", "parents")
    inputs = {k: x.to(dtype) for k, x in case.inputs(dtype, device).items()}
    return _agreement(case, inputs, wanted, fused=fused)


def exact_agreement(case: Case, dtype: torch.dtype, device: str) -> Result:
    """Return the same in float64, on inputs that ``dtype`` can hold."""
    inputs = case.inputs(dtype, device)
    return _agreement(case, inputs, ("poses", "weight", "parents"), fused=False)


def _agreement(
    case: Case, inputs: dict[str, Tensor], wanted: tuple[str, ...], *, fused: bool
) -> Result:
    leaves = {k: inputs[k].requires_grad_() for k in wanted}
    votes = case.votes(inputs)
    if fused:
        assert kernels.obstacle(votes, tiled=True) is None
        poses, couplings = kernels.attend(votes, inputs["parents"], scale=0.3, leaky=case.leaky)
    else:
        dense = votes.dense()
        logits = 0.3 * torch.einsum("bije,bje->bij", dense, inputs["parents"])
        if case.leaky:
            logits = nn.functional.pad(logits, (1, 0))
        couplings = logits.softmax(dim=-1)[..., -dense.shape[2] :]
        poses = torch.einsum("bij,bije->bje", couplings, dense)
    loss = (poses * inputs["d_poses"]).sum() + (couplings * inputs["d_couplings"]).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    out = {"sum": poses, "couplings": couplings}
    return out | {f"d {k}": g for k, g in zip(leaves, gradients, strict=True)}


def compare_routing(
    case: Case,
    make: Callable[..., RoutingFactory],
    dtype: torch.dtype,
    device: str,
    *,
    n_draws: int = 8,
    times: float = 2,
) -> None:
    """Check that a fused routing errs at most so many times as much as the plain one.

    Iterations amplify rounding by chance, so that errors are taken over several draws.
    """
    draws: list[tuple[Result, Result, Result]] = []
    for seed in range(n_draws):
        exact = case.inputs(dtype, device, seed)
        low = {k: x.to(dtype) for k, x in exact.items()}
        fused, plain = make(implementation="fused"), make(implementation="torch")
        draws.append(
            (_routing(case, fused, low), _routing(case, plain, low), _routing(case, plain, exact))
        )
    got, same, truth = ({k: _scaled(draws, index, k) for k in draws[0][2]} for index in range(3))
    compare(got, same, truth, dtype, times=times)


def _scaled(draws: list[tuple[Result, Result, Result]], index: int, name: str) -> Tensor:
    """Return one tensor of all draws, each divided by its norm."""
    parts = [(one[index][name].double() / one[2][name].norm()).flatten() for one in draws]
    return torch.cat(parts)


def routed(case: Case, factory: RoutingFactory, dtype: torch.dtype, device: str) -> Result:
    """Return the result of a routing in one precision, and all gradients."""
    return _routing(case, factory, {k: x.to(dtype) for k, x in case.inputs(dtype, device).items()})


def _routing(case: Case, factory: RoutingFactory, inputs: dict[str, Tensor]) -> Result:
    """Return the result of a routing for the votes of a case, and all gradients."""
    torch.manual_seed(0)
    names = ("poses", "weight", "activations", "scale", "shift")
    leaves = {k: inputs[k].detach().requires_grad_() for k in names}
    inputs = {**inputs, **leaves}
    votes = case.votes(inputs)
    routing = factory(sizes_for(votes)).to(votes.poses)
    routed = route(routing, votes, inputs["activations"])
    loss = (routed.poses * inputs["d_poses"]).sum() + routed.activations.square().sum()
    loss = loss + (routed.couplings * inputs["d_couplings"]).sum()
    learned = dict(routing.named_parameters())
    everything = {**leaves, **learned}
    gradients = torch.autograd.grad(loss, list(everything.values()), allow_unused=True)
    out = dict(zip(("routed poses", "activity", "couplings"), routed, strict=True))
    return out | {f"d {k}": g for k, g in zip(everything, gradients, strict=True) if g is not None}


FUSED: dict[str, Callable[..., RoutingFactory]] = {
    "dynamic": lambda **k: partial(tc.DynamicRouting, **k),
    "dynamic, leaky, biased": lambda **k: partial(tc.DynamicRouting, leaky=True, bias=True, **k),
    "dynamic, one iteration": lambda **k: partial(tc.DynamicRouting, iterations=1, **k),
    "inverted attention": lambda **k: partial(tc.InvertedAttentionRouting, iterations=3, **k),
    "inverted attention, activated": lambda **k: partial(
        tc.InvertedAttentionRouting, iterations=3, activated=True, **k
    ),
    "self-attention": lambda **k: partial(tc.SelfAttentionRouting, **k),
    "variational": lambda **k: partial(tc.VariationalRouting, **k),
    "em": lambda **k: partial(tc.EMRouting, iterations=3, **k),
    "em, one iteration": lambda **k: partial(
        tc.EMRouting, iterations=1, cost_scale=5.0, beta_scale=500.0, **k
    ),
}
PAIRWISE: dict[str, Callable[..., RoutingFactory]] = {
    "pairwise": lambda **k: partial(tc.PairwiseRouting, **k),
    "pairwise, not normalized": lambda **k: partial(
        tc.PairwiseRouting, normalise=False, half=False, unit=False, **k
    ),
}
"""The routings whose votes may have a scale and a learned bias."""


def compare(
    got: Result, plain: Result, exact: Result, dtype: torch.dtype, *, times: float = 2
) -> None:
    """Check that the kernel errs at most so many times as plain PyTorch in the same precision.

    One unit in the last place of the result is always allowed.
    """
    assert set(got) == set(exact)
    for name, x in exact.items():
        size = x.double().norm()
        ours = (got[name].double() - x).norm()
        theirs = (plain[name].double() - x).norm()
        allowed = times * theirs + torch.finfo(dtype).eps * size + 1e-30
        assert bool(got[name].isfinite().all()), f"{name} is not finite"
        assert ours <= allowed, f"{name}: error {ours / size:.1e}, plain {theirs / size:.1e}"

"""Windows over a grid of capsules: a true convolution, proven by the tests."""

import torch
from torch import Tensor

from torchcaps.capsules import Capsules, Routed
from torchcaps.tensors import Pair


def pair(name: str, value: int | Pair, *, least: int) -> Pair:
    """Return a height and a width from one number or two, each at least ``least``."""
    both = (value, value) if isinstance(value, int) else value
    if not isinstance(both, tuple) or len(both) != 2 or not all(isinstance(n, int) for n in both):
        raise ValueError(f"{name} must be a whole number or two, not {value!r}")
    if min(both) < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    return both


def same_child(
    size: tuple[int, int, int],
    kernel_size: Pair,
    stride: Pair,
    n_types: int,
    device: torch.device,
) -> Tensor | None:
    """Number the slots ``[(b h' w') (k t)]`` of all windows by the child they show.

    None if no child is in two windows. The numbers stay below the number of slots: where windows
    leave gaps, the children in the gaps are skipped.
    """
    (batch, oh, ow), (kh, kw) = size, kernel_size
    sh, sw = min(stride[0], kh), min(stride[1], kw)
    if (sh, sw) == (kh, kw):
        return None
    y = torch.arange(oh, device=device)[:, None] * sh + torch.arange(kh, device=device)  # [h' kh]
    x = torch.arange(ow, device=device)[:, None] * sw + torch.arange(kw, device=device)  # [w' kw]
    height, width = (oh - 1) * sh + kh, (ow - 1) * sw + kw
    position = y[:, None, :, None] * width + x[None, :, None, :]  # [h' w' kh kw]
    sample = torch.arange(batch, device=device).view(-1, 1, 1, 1, 1) * (height * width)
    kind = torch.arange(n_types, device=device)
    slots = (sample + position)[..., None] * n_types + kind
    return slots.reshape(batch * oh * ow, kh * kw * n_types)


def check_capsules(children: object, layer: str) -> None:
    """Refuse anything but capsules, with a sentence that says what the layer takes."""
    if not isinstance(children, Capsules | Routed):
        raise ValueError(
            f"{layer} takes Capsules(poses), or what another capsule layer returns, not "
            f"{type(children).__name__}"
        )
    poses = children.poses
    if not poses.is_floating_point():
        raise ValueError(f"{layer} takes poses of floating point numbers, not {poses.dtype}")
    if poses.dim() not in (3, 5):
        raise ValueError(f"poses must be [b i d] or [b h w i d], not {list(poses.shape)}")


def without_absent(
    children: Capsules | Routed, mask: Tensor, layer: str
) -> tuple[Capsules, Tensor]:
    """Return the capsules with poses of zero where the mask is False, and the mask ``[b ... i]``.

    The mask has one value per capsule, or one per position of a grid for all capsules there.
    """
    poses = children.poses
    shapes = [poses.shape[:-1]] + ([poses.shape[:3]] if poses.dim() == 5 else [])
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape not in shapes:
        what = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, Tensor) else repr(mask)
        allowed = " or ".join(str(list(shape)) for shape in shapes)
        raise ValueError(
            f"the mask of {layer} must be booleans {allowed}, True for capsules that are present, "
            f"not {what}"
        )
    if mask.dim() < poses.dim() - 1:
        mask = mask[..., None].expand(poses.shape[:-1])
    activations = children.activations
    if activations is not None:
        activations = activations.masked_fill(~mask, 0)
    return Capsules(poses.masked_fill(~mask[..., None], 0), activations), mask


def grid_of(children: Capsules | Routed, n_types: int, d: int, layer: str) -> Tensor:
    """Check that capsules are a grid ``[b h w i d]`` of what a layer was built for."""
    check_capsules(children, layer)
    poses = children.poses
    if poses.dim() != 5 or poses.shape[3:] != (n_types, d):
        raise ValueError(
            f"{layer} takes a grid of capsules [b h w {n_types} {d}], not {list(poses.shape)}"
        )
    return poses

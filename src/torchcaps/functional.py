"""Pure functions of tensors: lengths, squashing and the losses of the papers.

Values and gradients are finite for exact zeros and for entries up to 1e18 in float32 or bfloat16.
float16 ends at 65,504, which a sum over many children can exceed: prefer bfloat16.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.checks import check_share


def lengths(poses: Tensor) -> Tensor:
    """Return the Euclidean length over the last axis, ``[... d] -> [...]``.

    The gradient at a zero vector is zero, and large entries do not overflow on their way through
    the squares: the pose is divided by its largest entry first, which cancels exactly.

    Example:
        >>> tc.lengths(torch.tensor([[3.0, 4.0], [0, 0]]))
        tensor([5., 0.])
    """
    return _lengths(poses)[..., 0]


def normalized_lengths(poses: Tensor) -> Tensor:
    """Return length / sqrt(d) over the last axis, ``[... d] -> [...]`` (Choi 2019, Eq. 10)."""
    return lengths(poses) / math.sqrt(poses.shape[-1])


def squash(poses: Tensor) -> Tensor:
    """Squash poses: keep the direction and map the length n to n^2 / (1 + n^2).

    The last axis is the pose. Sabour 2017, Eq. 1, computed as ``s * n / (1 + n^2)``. Nothing is
    divided by the length, so that a zero vector has a zero gradient. ``n / (1 + n^2)`` is the same
    for n and 1/n, and the smaller of the two is used.

    Example:
        >>> tc.squash(torch.tensor([3.0, 4.0]))
        tensor([0.5769, 0.7692])
    """
    n = _lengths(poses)
    n = torch.where(n > 1, n.clamp_min(1).reciprocal(), n)
    squashed: Tensor = poses * (n / (1 + n.square()))
    return squashed


def exponential_squash(poses: Tensor) -> Tensor:
    """Squash poses: keep the direction and map the length n to 1 - exp(-n).

    Mazzia 2021, Eq. 3. Short poses keep their length: the factor is 1 at a zero vector.
    """
    n = _lengths(poses)
    safe = n.clamp_min(1e-4)
    squashed: Tensor = poses * torch.where(n > 1e-4, -torch.expm1(-safe) / safe, 1 - n / 2)
    return squashed


def unit(vectors: Tensor) -> Tensor:
    """Return the direction: a vector of length 1, or of zeros where the length is below 1e-6.

    A vector without a direction gives zero and gets no gradient, instead of one of 1e12.
    """
    wide = torch.promote_types(vectors.dtype, torch.float32)
    n = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True, dtype=wide)
    return (vectors * torch.where(n > 1e-6, n.clamp_min(1e-6).reciprocal(), 0)).to(vectors.dtype)


def digamma(x: Tensor) -> Tensor:
    """Return the derivative of the logarithm of the gamma function, for x above 0.

    ONNX has no such operator, so that an exported program holds the recurrence up to x + 10 and
    the asymptotic series there.
    """
    if not torch.compiler.is_exporting():
        return torch.digamma(x)
    y = x + 10
    square = y.square().reciprocal()
    series = torch.zeros_like(x)
    for coefficient in (1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
        series = square * (series + coefficient)
    steps = sum((1 / (x + k) for k in range(10)), start=torch.zeros_like(x))
    return y.log() - 0.5 / y - series - steps


def fit_gaussians(
    votes: Tensor, r: Tensor, *, min_variance: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Fit a Gaussian per parent to votes weighted by r ``[b i j]``: M-step of EM, lines 3 and 4.

    Returns:
        Means ``[b j e]``, squared distances ``[b i j e]`` from them, variances ``[b j e]`` and the
        total weight ``[b j]``.
    """
    mass = r.sum(dim=1)
    share = r / (mass + 1e-7)[:, None]
    mean = torch.einsum("bij,bije->bje", share, votes)  # line 3
    spread = (votes - mean[:, None]).square_()
    variance = torch.einsum("bij,bije->bje", share, spread) + min_variance  # line 4
    return mean, spread, variance, mass


def _lengths(poses: Tensor) -> Tensor:
    if not isinstance(poses, Tensor):
        raise ValueError(f"poses must be a tensor [... d], not {type(poses).__name__}")
    scale = poses.detach().abs().amax(dim=-1, keepdim=True).clamp_min(1)
    n: Tensor = scale * torch.linalg.vector_norm(poses / scale, dim=-1, keepdim=True)
    return n


def margin_loss(
    lengths: Tensor,
    targets: Tensor,
    *,
    present: float = 0.9,
    absent: float = 0.1,
    absent_weight: float = 0.5,
) -> Tensor:
    """Return the margin loss, summed over classes and averaged over the batch (Sabour 2017, Eq. 4).

    Args:
        lengths: one number per class, ``[b n]``, usually the lengths of the class capsules.
        targets: class numbers ``[b]``, or zeros and ones ``[b n]`` for several classes at once.
        present: m+, the length below which a class that is there costs.
        absent: m-, the length above which a class that is not there costs.
        absent_weight: lambda, how much an absent class counts.

    Example:
        >>> tc.margin_loss(torch.tensor([[0.9, 0.1]]), torch.tensor([1]))
        tensor(0.9600)
    """
    t = multi_hot(targets, lengths)
    hit = t * F.relu(present - lengths).square()
    miss = absent_weight * (1 - t) * F.relu(lengths - absent).square()
    return (hit + miss).sum(dim=-1).mean()


def spread_loss(activations: Tensor, targets: Tensor, *, margin: float | Tensor) -> Tensor:
    """Return the spread loss, averaged over the batch (Hinton 2018, Eq. 3).

    It sums max(0, m - (a_t - a_i))^2 over the wrong classes i, where t is the target.

    Args:
        activations: activations of the class capsules, ``[b n]``.
        targets: class numbers ``[b]``.
        margin: m, raised from 0.2 to 0.9 during training; see :func:`spread_margin`.
    """
    if not isinstance(margin, float | int | Tensor):
        raise ValueError(f"margin must be a number, not {margin!r}")
    right = multi_hot(targets, activations, several=False)
    target = (activations * right).sum(dim=-1, keepdim=True)
    cost = F.relu(margin - (target - activations)).square()
    return (cost * (1 - right)).sum(dim=-1).mean()


def spread_margin(share: float, *, sigmoid_steps: int | None = None) -> float:
    """Return the margin of the spread loss after a share of the run, 0 to 1.

    Args:
        share: share of the run that is done.
        sigmoid_steps: None rises linearly from 0.2 to 0.9 (Hinton 2018, section 3.2). A number is
            the length of the run in the authors' code, where the margin after k steps is
            0.2 + 0.79 * sigmoid(min(10, k / 50,000 - 4)).
    """
    if sigmoid_steps is None:
        return 0.2 + 0.7 * min(1.0, share)
    return 0.2 + 0.79 / (1 + math.exp(4 - min(14.0, share * sigmoid_steps / 50_000)))


def cross_entropy_loss(scores: Tensor, targets: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """Return the softmax cross-entropy of scores ``[b n]``, batch mean.

    Args:
        scores: logits, before the softmax.
        targets: class numbers ``[b]``, or probabilities ``[b n]`` as floats that sum to 1, such
            as those of CutMix and MixUp.
        label_smoothing: share of the target that is spread over all classes.
    """
    check_share("label_smoothing", label_smoothing)
    if not check_targets(targets, scores, several=True):
        _check_probabilities(targets)
        return F.cross_entropy(scores, targets.to(scores.dtype), label_smoothing=label_smoothing)
    return F.cross_entropy(scores, targets.long(), label_smoothing=label_smoothing)


def binary_cross_entropy_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the sigmoid cross-entropy, summed over classes and averaged over the batch.

    Args:
        scores: logits, before the sigmoid.
        targets: class numbers ``[b]``, or zeros and ones ``[b n]`` for several classes at once.
    """
    t = multi_hot(targets, scores)
    return F.binary_cross_entropy_with_logits(scores, t, reduction="none").sum(dim=-1).mean()


def reconstruction_loss(
    reconstructions: Tensor | None,
    images: Tensor,
    *,
    reduction: Literal["sum", "mean"] = "sum",
    weight: float | None = None,
) -> Tensor:
    """Return the weighted squared error of a reconstruction, averaged over the batch.

    Args:
        reconstructions: decoder output ``[b c h w]``, between 0 and 1.
        images: what it should be, same shape and the same range (not standardized).
        reduction: over the pixels of an image: "sum" (Sabour 2017) or "mean" (Choi 2019).
        weight: None takes the paper's: 0.0005 for "sum", 0.3 for "mean".
    """
    if reconstructions is None:
        raise ValueError(
            "there is no reconstruction: the network has no decoder, or got no targets in training"
        )
    for name, value in (("reconstructions", reconstructions), ("images", images)):
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} must be a tensor [b c h w], not {type(value).__name__}")
    if reconstructions.shape != images.shape:
        raise ValueError(
            f"reconstructions {list(reconstructions.shape)} and images {list(images.shape)} "
            "must have the same shape"
        )
    if reduction not in ("sum", "mean"):
        raise ValueError(f'reduction must be "sum" or "mean", not {reduction!r}')
    if reduction == "mean":
        scale = 0.3 if weight is None else weight
    else:
        scale = (0.0005 if weight is None else weight) * images.shape[1:].numel()
    return scale * F.mse_loss(reconstructions, images)


def multi_hot(targets: Tensor, scores: Tensor, *, several: bool = True) -> Tensor:
    """Return targets as zeros and ones ``[b n]`` of the scores' type.

    Args:
        targets: class numbers ``[b]``, or zeros and ones ``[b n]`` already.
        scores: ``[b n]``, for the shape.
        several: whether the second form, with several classes at once, is allowed.
    """
    if check_targets(targets, scores, several=several):
        return F.one_hot(targets.long(), scores.shape[1]).to(scores.dtype)
    return targets.to(scores.dtype)


def check_classes(classes: Tensor, n_classes: int) -> None:
    """Refuse class numbers that do not exist; on a GPU the kernels that use them will."""
    if torch.compiler.is_compiling() or classes.device.type != "cpu" or not classes.numel():
        return
    try:
        low, high = int(classes.min()), int(classes.max())
    except RuntimeError:  # inside torch.func.vmap, where no number can be read
        return
    if low < 0 or high >= n_classes:
        wrong = low if low < 0 else high
        raise ValueError(f"there is no class {wrong}: {n_classes} classes count from 0")


def _check_probabilities(targets: Tensor) -> None:
    """Refuse rows that are no probabilities; on a GPU they are not read."""
    if not targets.is_floating_point():
        raise ValueError(f"probabilities of classes must be floats, not {targets.dtype}")
    if torch.compiler.is_compiling() or targets.device.type != "cpu" or not targets.numel():
        return
    try:
        low, off = float(targets.min()), float((targets.sum(dim=1) - 1).abs().max())
    except RuntimeError:  # inside torch.func.vmap, where no number can be read
        return
    if not (low >= 0 and off < 0.01):
        raise ValueError("probabilities of classes must be at least 0 and sum to 1 for each image")


def check_targets(targets: Tensor, scores: Tensor, *, several: bool) -> bool:
    """Return whether targets are class numbers and not zeros and ones; refuse others."""
    if not isinstance(scores, Tensor) or scores.dim() != 2:
        shape = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"scores must be a tensor [batch classes], not {shape}")
    if not isinstance(targets, Tensor):
        raise ValueError(f"targets must be a tensor [batch], not {type(targets).__name__}")
    if targets.shape == scores.shape[:1]:
        if targets.is_floating_point():
            raise ValueError(f"class numbers must be integers, not {targets.dtype}")
        check_classes(targets, scores.shape[1])
        return True
    if several and targets.shape == scores.shape:
        return False
    allowed = "[batch] or [batch classes]" if several else "[batch]"
    raise ValueError(
        f"targets {list(targets.shape)} do not fit scores {list(scores.shape)}: "
        f"they must be {allowed}"
    )


def coupling_entropy(couplings: Tensor, *, competes_over: str = "parents") -> Tensor:
    """Return the entropy in nats of couplings ``[... i j]``: ``[... i]`` or ``[... j]``.

    It is taken over children if they compete, else over parents. Negative couplings count as zero,
    and the others are scaled to sum to one.
    """
    axis = -2 if competes_over == "children" else -1
    shares = couplings.clamp_min(0)
    shares = shares / shares.sum(dim=axis, keepdim=True).clamp_min(1e-30)
    entropy: Tensor = torch.special.entr(shares).sum(dim=axis)
    return entropy

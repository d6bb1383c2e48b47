"""Handwritten-looking digits drawn from our own vector strokes, with known poses.

Each glyph is a few curves through control points (Catmull-Rom splines), moved a little for every
sample so that no two are alike, mapped by the sample's pose and drawn with a round pen: a pixel's
ink is how far it lies inside the pen's path, anti-aliased over one pixel. Nothing is stored or
downloaded; sample i of a seed is the same on every machine.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.checks import check_whole
from torchcaps.data.augment.transforms import linear_map
from torchcaps.data.dataset import Batch
from torchcaps.data.generated import Generated
from torchcaps.data.random import Draws, stream_key
from torchcaps.data.sets.canonical import DIGITS
from torchcaps.data.sets.glyphs import GLYPHS

POSE = ("x", "y", "rotation", "scale_x", "scale_y", "shear", "thickness")

_SPAN = 3
_CHUNK = 32


@dataclass(frozen=True)
class PoseRange:
    """Where poses are drawn from, uniformly.

    Attributes:
        shift: x and y, fraction of the image either way.
        rotation: degrees either way.
        scale: range of the factors in x and y, drawn independently.
        shear: x per y, either way.
        thickness: range of the pen's width, fraction of the image.
    """

    shift: float = 0.1
    rotation: float = 20.0
    scale: tuple[float, float] = (0.75, 1.15)
    shear: float = 0.3
    thickness: tuple[float, float] = (0.05, 0.13)


_TABLES: dict[torch.device, tuple[Tensor, Tensor, Tensor]] = {}


def _table(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """`_build_table` on a device, kept there."""
    if device not in _TABLES:
        control, begin, end = _build_table()
        _TABLES[device] = control.to(device), begin.to(device), end.to(device)
    return _TABLES[device]


def _build_table() -> tuple[Tensor, Tensor, Tensor]:
    """Control points ``[g k 2]`` and the weights of segment starts and ends ``[g s k]``."""
    points, starts, ends = [], [], []
    for _, strokes in GLYPHS:
        control = list(dict.fromkeys(point for stroke in strokes for point in stroke))
        first, last = [], []
        for stroke in strokes:
            basis = torch.eye(len(control))[[control.index(point) for point in stroke]]
            path = _spline(basis)
            first.append(path[:-1])
            last.append(path[1:])
        points.append(torch.tensor(control))
        starts.append(torch.cat(first))
        ends.append(torch.cat(last))
    k, s = max(map(len, points)), max(map(len, starts))
    stacked = torch.zeros(len(points), k, 2)
    begin, end = torch.zeros(2, len(points), s, k)
    for g, control_points in enumerate(points):
        n, m = len(control_points), len(starts[g])
        stacked[g, :n] = control_points
        # spare segments repeat the last one, which changes no distance
        begin[g, :, :n] = torch.cat([starts[g], starts[g][-1:].expand(s - m, -1)])
        end[g, :, :n] = torch.cat([ends[g], ends[g][-1:].expand(s - m, -1)])
    return stacked, begin, end


def _spline(control: Tensor) -> Tensor:
    """Points along a Catmull-Rom curve through ``[k d]``, as weights like its rows."""
    if len(control) == 2:
        return control
    closed = bool((control[0] == control[-1]).all())
    before = control[-2] if closed else 2 * control[0] - control[1]
    after = control[1] if closed else 2 * control[-1] - control[-2]
    c = torch.cat([before[None], control, after[None]])
    path = []
    for i in range(1, len(control)):
        p0, p1, p2, p3 = c[i - 1], c[i], c[i + 1], c[i + 2]
        for step in range(_SPAN):
            t = step / _SPAN
            path.append(
                p1
                + 0.5 * t * (p2 - p0)
                + t**2 * (p0 - 2.5 * p1 + 2 * p2 - 0.5 * p3)
                + 0.5 * t**3 * (3 * p1 - p0 - 3 * p2 + p3)
            )
    return torch.stack([*path, control[-1]])


def render(glyphs: Tensor, poses: Tensor, *, size: int, offsets: Tensor | None = None) -> Tensor:
    """Draw glyphs in given poses: uint8 ``[b 1 size size]``.

    Moving a sample's pose and drawing it again with its own ``glyphs`` and ``offsets`` gives the
    same handwriting elsewhere, which is what equivariance is measured against.

    Args:
        glyphs: long ``[b]``, rows of `GLYPHS`.
        poses: ``[b 7]`` in the order of `POSE`: x and y in pixels from the center (right, down),
            rotation in degrees (anticlockwise), the two scales (at 1 a glyph is 0.6 of the image
            high), shear (x per y, the top leaning right) and thickness (the pen's width in pixels).
            A glyph is scaled, then sheared, then turned, then moved.
        size: height and width.
        offsets: ``[b k 2]`` added to the control points, whose glyphs are 2 high.
    """
    check_whole("size", size, least=1)
    if glyphs.ndim != 1 or glyphs.is_floating_point() or poses.shape != (len(glyphs), len(POSE)):
        raise ValueError(
            f"render takes long glyphs [b] and poses [b {len(POSE)}], not {glyphs.dtype} "
            f"{list(glyphs.shape)} and {list(poses.shape)}"
        )
    shape = (len(glyphs), *_table(glyphs.device)[0].shape[1:])
    if offsets is not None and offsets.shape != shape:
        raise ValueError(f"offsets must be {list(shape)}, not {list(offsets.shape)}")
    _check_glyphs(glyphs)
    if offsets is None:
        offsets = poses.new_zeros(shape)
    if glyphs.device.type != "cpu":
        return _render(glyphs, poses, size, offsets)
    # on a CPU small chunks stay in the cache
    chunks = (torch.split(tensor, _CHUNK) for tensor in (glyphs, poses, offsets))
    return torch.cat([_render(g, p, size, o) for g, p, o in zip(*chunks, strict=True)])


def _check_glyphs(glyphs: Tensor) -> None:
    """Refuse glyphs that do not exist; on a GPU the kernels that look them up will."""
    if torch.compiler.is_compiling() or glyphs.device.type != "cpu" or not len(glyphs):
        return
    low, high = int(glyphs.min()), int(glyphs.max())
    if low < 0 or high >= len(GLYPHS):
        wrong = low if low < 0 else high
        raise ValueError(f"there is no glyph {wrong}: {len(GLYPHS)} glyphs count from 0")


def _render(glyphs: Tensor, poses: Tensor, size: int, offsets: Tensor) -> Tensor:
    control, begin, end = (table[glyphs] for table in _table(glyphs.device))
    control = control + offsets
    x, y, rotation, scale_x, scale_y, shear, thickness = poses.unbind(-1)
    unit = 0.3 * size
    matrix = linear_map(rotation * (torch.pi / 180), scale_x * unit, scale_y * unit, -shear)
    # sums, not matmul: no reduced precision under autocast or TF32
    control = (control[:, :, None] * matrix[:, None]).sum(-1) + torch.stack([x, y], -1)[:, None]
    start = (begin[..., None] * control[:, None]).sum(2)
    stop = (end[..., None] * control[:, None]).sum(2)
    distance = _distance(start + (size - 1) / 2, stop + (size - 1) / 2, size)
    ink = (thickness[:, None, None] / 2 + 0.5 - distance).clamp_(0, 1)
    return (ink * 255).round_().byte()[:, None]


def _distance(start: Tensor, stop: Tensor, size: int) -> Tensor:
    """From each pixel to the nearest of the segments ``[b s 2]``: ``[b size size]``.

    With d = pixel - start, u = stop - start and t = (d . u) / |u|^2 held in 0..1, the squared
    distance is |d|^2 - t (2 d . u - t |u|^2).
    """
    grid = torch.arange(size, device=start.device, dtype=start.dtype)
    d = grid - start[..., None]
    u = (stop - start)[..., None]
    length = (u * u).sum(2)[..., None].clamp_min(1e-6)
    along = (d * u)[:, :, 0, None, :] + (d * u)[:, :, 1, :, None]
    t = (along / length).clamp_(0, 1)
    gain = along.mul_(2).addcmul_(t, length, value=-1).mul_(t)
    square = (d * d)[:, :, 0, None, :] + (d * d)[:, :, 1, :, None]
    return square.sub_(gain).amin(1).clamp_min_(0).sqrt_()


class Strokes(Generated):
    """Digits in known poses, drawn when asked for.

    How hard it is: trained on the 60,000 samples of ``load("strokes")`` with Adam, a linear
    classifier reaches 75.3 % of the 10,000 test samples (10 epochs) and a network of two 5x5
    convolutions and 64 hidden units 99.5 % (6 epochs, 17 s on one CPU core); means of 3 seeds,
    spread 0.3 points. A test repeats this on 12,000 samples.

    ``annotations`` of a batch (for overlapping sets with a second axis for the two glyphs):
    ``pose`` ``[b 7]`` in the order of `POSE`, ``glyph`` ``[b]`` and ``offsets`` ``[b k 2]`` for
    `render`, and ``mask`` ``[b 1 h w]``, true where the glyph has ink (shaped like the targets for
    overlapping sets, ``[b 2 1 h w]``).

    Args:
        count: samples in an epoch; any number, nothing is stored.
        size: height and width of the images.
        overlapping: two glyphs of different classes and the clipped sum of both, as `MultiMNIST`.
        split: ``"train"``, ``"validation"``, ``"test"`` or any word: other words, other samples.
        seed: other seeds, other samples.
        fresh: draw new samples in every epoch instead of the same ``count``.
        poses: where poses are drawn from.
        jitter: how far control points move, as a fraction of half a glyph's height.
        device: where samples are drawn.
    """

    name = "strokes"

    def __init__(
        self,
        count: int = 60_000,
        *,
        size: int = 28,
        overlapping: bool = False,
        split: str = "train",
        seed: int = 0,
        fresh: bool = False,
        poses: PoseRange | None = None,
        jitter: float = 0.16,
        device: torch.device | str = "cpu",
    ) -> None:
        check_whole("count", count, least=1)
        check_whole("size", size, least=8)
        check_whole("seed", seed)
        super().__init__(size, DIGITS, split)
        self.count = count
        self.overlapping = overlapping
        self.seed = seed
        self.fresh = fresh
        self.poses = poses or PoseRange()
        self.jitter = jitter
        names = [name for name, _ in GLYPHS]
        self._first = torch.tensor([names.index(name) for name in DIGITS], device=device)
        self._variants = torch.tensor([names.count(name) for name in DIGITS], device=device)

    def __len__(self) -> int:
        return self.count

    @property
    def device(self) -> torch.device:
        """Where samples are drawn."""
        return self._first.device

    def to(self, device: torch.device | str) -> "Strokes":
        """The same set on another device."""
        return Strokes(
            self.count,
            size=self.size,
            overlapping=self.overlapping,
            split=self.split,
            seed=self.seed,
            fresh=self.fresh,
            poses=self.poses,
            jitter=self.jitter,
            device=device,
        )

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """The samples of these indices."""
        epoch = draws.key if self.fresh else 0
        own = Draws(stream_key(self.seed, epoch, f"strokes {self.split}"), samples)
        labels = own.integers(10)
        if self.overlapping:
            labels = torch.cat([labels, (labels + 1 + own.integers(9)) % 10])
        parts = [self._glyph(label, own) for label in labels]
        if not self.overlapping:
            image, note = parts[0]
            return Batch(image, labels[0], samples, annotations=note)
        (first, note), (second, other) = parts
        notes = {name: torch.stack([note[name], other[name]], 1) for name in note}
        image = first + torch.minimum(second, 255 - first)
        return Batch(image, labels.T, samples, torch.stack([first, second], 1), notes)

    def _glyph(self, label: Tensor, own: Draws) -> tuple[Tensor, dict[str, Tensor]]:
        glyph = self._first[label] + own.integers(self._variants[label])[0]
        pose = self._pose(own)
        points = _table(self.device)[0].shape[1]
        wiggle = own.uniform(-0.5, 0.5, 2 * points) + own.uniform(-0.5, 0.5, 2 * points)
        offsets = wiggle.T.reshape(-1, points, 2) * self.jitter
        image = render(glyph, pose, size=self.size, offsets=offsets)
        note = {"pose": pose, "glyph": glyph, "offsets": offsets, "mask": image >= 128}
        return image, note

    def _pose(self, own: Draws) -> Tensor:
        ranges, size = self.poses, self.size
        return torch.cat(
            [
                own.uniform(-ranges.shift * size, ranges.shift * size, 2),
                own.uniform(-ranges.rotation, ranges.rotation),
                own.uniform(*ranges.scale, 2),
                own.uniform(-ranges.shear, ranges.shear),
                own.uniform(ranges.thickness[0] * size, ranges.thickness[1] * size),
            ]
        ).T.contiguous()

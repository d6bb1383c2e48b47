"""Drawing of glyphs in given poses.

A glyph is a few Catmull-Rom splines through control points. A pose maps it, and a round pen draws
it. The ink of a pixel is its depth inside the path of the pen, anti-aliased over one pixel.
"""

import torch
from torch import Tensor

from torchcaps.checks import check_whole
from torchcaps.data.augment import linear_map
from torchcaps.data.strokes.glyphs import GLYPHS

POSE = ("x", "y", "rotation", "scale_x", "scale_y", "shear", "thickness")
"""Names of a pose's seven numbers, in order."""

_POINTS_PER_SEGMENT = 3
_CHUNK = 32


_TABLES: dict[torch.device, tuple[Tensor, Tensor, Tensor]] = {}


def glyph_tables(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return control points and the weights of segment starts and ends, cached per device."""
    if device not in _TABLES:
        control, begin, end = _build_tables()
        _TABLES[device] = control.to(device), begin.to(device), end.to(device)
    return _TABLES[device]


def _build_tables() -> tuple[Tensor, Tensor, Tensor]:
    """Return control points ``[g k 2]`` and the weights of segment starts and ends ``[g s k]``."""
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
        # padding repeats the last segment, which changes no distance
        begin[g, :, :n] = torch.cat([starts[g], starts[g][-1:].expand(s - m, -1)])
        end[g, :, :n] = torch.cat([ends[g], ends[g][-1:].expand(s - m, -1)])
    return stacked, begin, end


def _spline(control: Tensor) -> Tensor:
    """Return points along the Catmull-Rom spline through the rows of ``[k d]``."""
    if len(control) == 2:
        return control
    closed = bool((control[0] == control[-1]).all())
    before = control[-2] if closed else 2 * control[0] - control[1]
    after = control[1] if closed else 2 * control[-1] - control[-2]
    c = torch.cat([before[None], control, after[None]])
    path = []
    for i in range(1, len(control)):
        p0, p1, p2, p3 = c[i - 1], c[i], c[i + 1], c[i + 2]
        for step in range(_POINTS_PER_SEGMENT):
            t = step / _POINTS_PER_SEGMENT
            path.append(
                p1
                + 0.5 * t * (p2 - p0)
                + t**2 * (p0 - 2.5 * p1 + 2 * p2 - 0.5 * p3)
                + 0.5 * t**3 * (3 * p1 - p0 - 3 * p2 + p3)
            )
    return torch.stack([*path, control[-1]])


def render(glyphs: Tensor, poses: Tensor, *, size: int, offsets: Tensor | None = None) -> Tensor:
    """Draw glyphs in given poses: uint8 ``[b 1 size size]``.

    A sample's ``glyphs`` and ``offsets`` with another pose give the same handwriting elsewhere.
    Equivariance is measured against such images.

    Args:
        glyphs: long ``[b]``, rows of `GLYPHS`.
        poses: ``[b 7]`` in the order of `POSE`. x and y are pixels right and down from the center,
            and rotation is in degrees, anticlockwise. At scale 1 a glyph's height is 0.6 of the
            image. Shear is x per y, the top leaning right. The pen's width is in pixels. A glyph
            is scaled, then sheared, then rotated, then shifted.
        size: height and width of the images.
        offsets: ``[b k 2]``, added to the control points; glyphs are 2 units high.
    """
    check_whole("size", size, least=1)
    if glyphs.ndim != 1 or glyphs.is_floating_point() or poses.shape != (len(glyphs), len(POSE)):
        raise ValueError(
            f"render takes long glyphs [b] and poses [b {len(POSE)}], not {glyphs.dtype} "
            f"{list(glyphs.shape)} and {list(poses.shape)}"
        )
    shape = (len(glyphs), *glyph_tables(glyphs.device)[0].shape[1:])
    if offsets is not None and offsets.shape != shape:
        raise ValueError(f"offsets must be {list(shape)}, not {list(offsets.shape)}")
    _check_glyphs(glyphs)
    if offsets is None:
        offsets = poses.new_zeros(shape)
    if glyphs.device.type != "cpu":
        return _render(glyphs, poses, size, offsets)
    # on a CPU, small chunks stay in the cache
    chunks = (torch.split(tensor, _CHUNK) for tensor in (glyphs, poses, offsets))
    return torch.cat([_render(g, p, size, o) for g, p, o in zip(*chunks, strict=True)])


def _check_glyphs(glyphs: Tensor) -> None:
    """Refuse unknown glyphs on a CPU; on a GPU the lookup itself fails."""
    if torch.compiler.is_compiling() or glyphs.device.type != "cpu" or not len(glyphs):
        return
    low, high = int(glyphs.min()), int(glyphs.max())
    if low < 0 or high >= len(GLYPHS):
        wrong = low if low < 0 else high
        raise ValueError(f"there is no glyph {wrong}: {len(GLYPHS)} glyphs count from 0")


def _render(glyphs: Tensor, poses: Tensor, size: int, offsets: Tensor) -> Tensor:
    control, begin, end = (table[glyphs] for table in glyph_tables(glyphs.device))
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
    """Return each pixel's distance ``[b size size]`` to the nearest segment ``[b s 2]``.

    With d = pixel - start, u = stop - start and t = (d . u) / |u|^2 clamped to 0..1, the squared
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

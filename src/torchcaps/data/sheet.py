"""Contact sheets: many small images in one PNG."""

import io
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from torchcaps.data.batches import Source
from torchcaps.data.random import Draws, stream_key
from torchcaps.errors import InputError
from torchcaps.storage import write_bytes


def contact_sheet(images: Tensor, *, columns: int = 20, gap: int = 2) -> Tensor:
    """Lay images ``[n c h w]`` out in rows and return uint8 ``[c height width]``.

    Two channels, such as smallNORB's stereo pairs, appear side by side.
    """
    if images.shape[1] == 2:
        images = torch.cat([images[:, :1], images[:, 1:]], -1)
    count, channels = images.shape[:2]
    if channels not in (1, 3) or not count:
        raise InputError(f"a sheet needs images of 1, 2 or 3 channels, not {list(images.shape)}")
    columns = min(columns, count)
    rows = -(-count // columns)
    padding = images.new_zeros(rows * columns - count, *images.shape[1:])
    tiles = functional.pad(torch.cat([images, padding]), (0, gap, 0, gap), value=64)
    grid = tiles.reshape(rows, columns, *tiles.shape[1:]).permute(2, 0, 3, 1, 4)
    sheet = grid.reshape(channels, rows * tiles.shape[-2], columns * tiles.shape[-1])
    return functional.pad(sheet, (gap, 0, gap, 0), value=64)


def first_samples(source: Source, count: int) -> Tensor:
    """Return the first ``count`` images of a set as uint8, ordered by class."""
    samples = torch.arange(min(count, len(source)), device=source.device)
    batch = source.draw(samples, Draws(stream_key(0, 0, "draw"), samples))
    labels = batch.labels if batch.labels.ndim == 1 else batch.labels[:, 0]
    return batch.images[torch.sort(labels, stable=True).indices]


def save_png(image: Tensor, path: str | Path, *, zoom: int = 1) -> None:
    """Write uint8 ``[c height width]`` atomically as a PNG."""
    from PIL import Image

    pixels = image.cpu().repeat_interleave(zoom, 1).repeat_interleave(zoom, 2)
    array = pixels[0] if len(pixels) == 1 else pixels.permute(1, 2, 0)
    data = io.BytesIO()
    Image.fromarray(array.contiguous().numpy()).save(data, "PNG")
    write_bytes(path, data.getvalue())

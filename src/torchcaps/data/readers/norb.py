"""smallNORB's binary matrices (``.mat`` by name only).

Layout, little-endian: a magic number for the element type, the number of dimensions, each dimension
as a 32-bit integer (at least three of them, unused ones are 1), then the elements.
See https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/.
"""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchcaps.data.readers.bytes import Cursor, FileFormatError, gunzip
from torchcaps.data.readers.idx import GZIP_MAGIC

TYPES: dict[int, np.dtype[Any]] = {0x1E3D4C55: np.dtype("u1"), 0x1E3D4C54: np.dtype("<i4")}
MAX_DIMENSIONS = 4


def read_norb(data: bytes, *, ndim: int, limit: int) -> NDArray[Any]:
    """Read a matrix of bytes or of 32-bit integers, gzipped or not.

    Args:
        data: the whole file.
        ndim: 4 for images ``[n 2 96 96]``, 1 for categories, 2 for the four annotations.
        limit: the most elements the data set can have.
    """
    if data[:2] == GZIP_MAGIC:
        data = gunzip(data, limit=4 * limit + 8 + 4 * MAX_DIMENSIONS)
    cursor = Cursor(data)
    magic = cursor.integer(4)
    if magic not in TYPES:
        raise FileFormatError("it is not a smallNORB matrix of bytes or integers")
    if cursor.integer(4) != ndim:
        raise FileFormatError(f"it is not a smallNORB matrix of {ndim} dimensions")
    shape = tuple(cursor.integer(4) for _ in range(max(ndim, 3)))
    if any(size != 1 for size in shape[ndim:]):
        raise FileFormatError("its unused dimensions are not 1")
    size = prod(shape[:ndim])
    if size > limit:
        raise FileFormatError(f"its header announces {size} elements, more than the {limit} known")
    elements = np.frombuffer(cursor.take(size * TYPES[magic].itemsize), TYPES[magic])
    cursor.end()
    return elements.reshape(shape[:ndim]).copy()

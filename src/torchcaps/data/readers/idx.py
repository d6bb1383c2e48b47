"""IDX files, the format of MNIST and Fashion-MNIST.

Layout: two zero bytes, the element type (8 = unsigned byte), the number of dimensions, each
dimension as a big-endian 32-bit integer, then the elements. See http://yann.lecun.com/exdb/mnist/.
"""

from math import prod

import numpy as np
from numpy.typing import NDArray

from torchcaps.data.readers.bytes import Cursor, FileFormatError, gunzip

UNSIGNED_BYTE = 8
GZIP_MAGIC = b"\x1f\x8b"


def read_idx(data: bytes, *, ndim: int, limit: int) -> NDArray[np.uint8]:
    """Read unsigned bytes of ``ndim`` dimensions, gzipped or not.

    Args:
        data: the whole file.
        ndim: 3 for images, 1 for labels.
        limit: the most elements the data set can have.
    """
    if data[:2] == GZIP_MAGIC:
        data = gunzip(data, limit=limit + 4 + 4 * ndim)
    cursor = Cursor(data)
    magic = bytes(cursor.take(4))
    if magic != bytes((0, 0, UNSIGNED_BYTE, ndim)):
        raise FileFormatError(f"it is not an IDX file of bytes in {ndim} dimensions")
    shape = tuple(cursor.integer(4, big=True) for _ in range(ndim))
    size = prod(shape)
    if size > limit:
        raise FileFormatError(f"its header announces {size} elements, more than the {limit} known")
    elements = np.frombuffer(cursor.take(size), np.uint8)
    cursor.end()
    return elements.reshape(shape).copy()

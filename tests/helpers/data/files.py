"""Small files in the canonical formats, written from scratch."""

import gzip
import io
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


def idx(array: Bytes) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def norb(array: NDArray[np.uint8] | NDArray[np.int32]) -> bytes:
    magic = 0x1E3D4C55 if array.dtype == np.uint8 else 0x1E3D4C54
    shape = (*array.shape, 1, 1, 1)[: max(3, array.ndim)]
    return struct.pack(f"<{2 + len(shape)}I", magic, array.ndim, *shape) + array.tobytes()


def cifar_binary(images: Bytes, labels: Bytes) -> bytes:
    return np.concatenate([labels, images.reshape(len(images), -1)], axis=1).tobytes()


def _string(text: bytes) -> bytes:
    if len(text) < 256:
        return b"U" + bytes((len(text),)) + text
    return b"T" + struct.pack("<I", len(text)) + text


def _integer(value: int) -> bytes:
    return b"K" + bytes((value,)) if value < 256 else b"M" + struct.pack("<H", value)


def cifar_pickle(images: Bytes, labels: dict[str, list[int]]) -> bytes:
    """A batch as Python 2 pickled it: protocol 2, byte strings, one numpy array."""
    out = b"\x80\x02}q\x01(" + _string(b"batch_label") + b"q\x02" + _string(b"batch 1") + b"q\x03"
    for key, values in labels.items():
        out += _string(key.encode()) + b"](" + b"".join(map(_integer, values)) + b"e"
    dtype = b"cnumpy\ndtype\n" + _string(b"u1") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + _string(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x06cnumpy\nndarray\nK\x00\x85" + _string(b"b")
    array += b"\x87R(K\x01" + _integer(len(images)) + _integer(3072) + b"\x86" + dtype + b"\x89"
    array += b"T" + struct.pack("<I", images.size) + images.tobytes() + b"tb"
    return out + _string(b"data") + array + b"u."


_MAT_TYPES = {"u1": 2, "i4": 5, "u2": 4, "f8": 9}
_MAT_CLASSES = {"u1": 9, "i4": 12, "u2": 11, "f8": 6}


def _element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + b"\0" * (-len(content) % 8)


def _head(kind: int, shape: tuple[int, ...], name: str) -> bytes:
    label = name.encode()
    if 0 < len(label) <= 4:
        text = struct.pack("<HH", 1, len(label)) + label.ljust(4, b"\0")
    else:
        text = _element(1, label)
    flags = _element(6, struct.pack("<II", kind, 0))
    return flags + _element(5, struct.pack(f"<{len(shape)}i", *shape)) + text


def mat_array(name: str, array: NDArray[np.generic]) -> bytes:
    code = array.dtype.str[1:]
    content = _head(_MAT_CLASSES[code], array.shape, name)
    return _element(14, content + _element(_MAT_TYPES[code], array.tobytes(order="F")))


def mat_struct(name: str, fields: dict[str, NDArray[np.generic]]) -> bytes:
    names = b"".join(key.encode().ljust(32, b"\0") for key in fields)
    content = _head(2, (1, 1), name) + struct.pack("<HHI", 5, 4, 32) + _element(1, names)
    return _element(14, content + b"".join(mat_array("", value) for value in fields.values()))


def mat_file(*elements: bytes, compressed: bool = False) -> bytes:
    header = (
        b"MATLAB 5.0 MAT-file, written by a test".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    )
    if compressed:
        packed = [zlib.compress(element) for element in elements]
        elements = tuple(struct.pack("<II", 15, len(part)) + part for part in packed)
    return header + b"".join(elements)


def svhn(images: Bytes, labels: Bytes, *, compressed: bool = True) -> bytes:
    """SVHN stores X as [h w c n] and the digit 0 as 10."""
    stored = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
    pixels = np.ascontiguousarray(images.transpose(2, 3, 1, 0))
    return mat_file(mat_array("X", pixels), mat_array("y", stored), compressed=compressed)


def affnist(images: Bytes, labels: Bytes, *, compressed: bool = True) -> bytes:
    """The struct of affNIST: unused fields beside the image columns and the labels."""
    fields: dict[str, NDArray[np.generic]] = {
        "affine_params": np.zeros((6, len(labels))),
        "image": np.ascontiguousarray(images.reshape(len(images), -1).T),
        "label_one_of_n": np.eye(10, dtype=np.uint8)[labels].T.copy(),
        "label_int": labels.astype(np.float64)[None],
    }
    return mat_file(mat_struct("affNISTdata", fields), compressed=compressed)


def picture(array: Bytes, kind: str = "PNG", *, orientation: int = 1) -> bytes:
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    if kind == "GIF":
        Image.fromarray(array).save(file, kind)
    else:
        Image.fromarray(array).save(file, kind, exif=exif)
    return file.getvalue()


def png(array: Bytes) -> bytes:
    return picture(array)


def big_endian_tiff(size: int) -> bytes:
    """A black square of 16 bits per pixel, most significant byte first."""
    tags = {256: size, 257: size, 258: 16, 259: 1, 262: 1, 273: 200, 277: 1, 278: size}
    tags[279] = 2 * size * size
    entries = b"".join(struct.pack(">HHII", tag, 4, 1, value) for tag, value in tags.items())
    head = b"MM\0*" + struct.pack(">IH", 8, len(tags)) + entries + bytes(4)
    return head.ljust(200, b"\0") + bytes(2 * size * size)


def gz(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)

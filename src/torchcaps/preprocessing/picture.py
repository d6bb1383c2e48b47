"""Pictures in the usual formats, decoded by Pillow."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from torchcaps.errors import FileFormatError

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF")
MAX_PIXELS = 100_000_000


def decode_image(file: IO[bytes]) -> NDArray[np.uint8]:
    """Decode an image, upright and on black, to ``[h w]`` (gray) or ``[h w 3]`` (color)."""
    from PIL import Image

    def opened() -> "Image.Image":
        return Image.open(file, formats=FORMATS)

    with _checked(opened) as image:
        return _pixels(image)


def convert_image(image: "Image.Image") -> NDArray[np.uint8]:
    """Convert a Pillow image as :func:`decode_image` decodes a file."""
    with _checked(lambda: image) as checked:
        return _pixels(checked)


def _pixels(image: "Image.Image") -> NDArray[np.uint8]:
    from PIL import Image

    mode, turn = "L" if _is_gray(image) else "RGB", _upright_turn(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (0, 0, 0, 255)), image)
    image = image.convert(mode)
    return np.array(image if turn is None else image.transpose(turn))


def measure_image(file: IO[bytes]) -> tuple[tuple[int, int], bool]:
    """Return height and width of the upright image and whether it has color, from its header."""
    from PIL import Image

    def opened() -> "Image.Image":
        return Image.open(file, formats=FORMATS)

    with _checked(opened) as image:
        sideways = _upright_turn(image) in _SIDEWAYS
        height, width = image.size if sideways else image.size[::-1]
        return (height, width), not _is_gray(image)


@contextmanager
def _checked(opened: "Callable[[], Image.Image]") -> "Iterator[Image.Image]":
    """Yield an image of 8 bits and a sensible size; raise one kind of error for any other."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = opened()
            if image.width * image.height > MAX_PIXELS:
                raise FileFormatError(f"it has more than {MAX_PIXELS} pixels")
            if image.mode in ("I", "F") or image.mode.startswith("I;16"):
                raise FileFormatError("it has more than 8 bits per channel")
            yield image
    except FileFormatError:
        raise
    except Exception as error:  # a decoder may raise any error on a corrupt file
        raise FileFormatError(f"it is not a whole image ({type(error).__name__})") from None


def _is_gray(image: "Image.Image") -> bool:
    if image.palette is None or image.mode not in ("P", "PA"):
        return image.mode in ("1", "L", "LA", "La")
    order, data = image.palette.getdata()
    if order.endswith(";L"):
        third = len(data) // 3
        red, green, blue = (bytes(data[i * third : (i + 1) * third]) for i in range(3))
    else:
        red, green, blue = (bytes(data[i :: len(order)]) for i in range(3))
    return red == green == blue


# Pillow's transposition that undoes each EXIF orientation
_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
_SIDEWAYS = (5, 4, 6, 2)
_ORIENTATION = 0x0112


def _upright_turn(image: "Image.Image") -> "Image.Transpose | None":
    """Return the transposition that makes the image upright; ignore damaged EXIF data."""
    from PIL import Image

    if image.format == "TIFF":  # Pillow transposes these itself
        return None
    try:
        # the method of PNG images would decode the image
        orientation = Image.Image.getexif(image).get(_ORIENTATION)
    except Exception:
        return None
    return Image.Transpose(_TURNS[orientation]) if orientation in _TURNS else None

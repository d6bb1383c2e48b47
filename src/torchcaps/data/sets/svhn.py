"""SVHN, the cropped digits."""

import numpy as np

from torchcaps.data.description import Description, split_counts
from torchcaps.data.download import Download
from torchcaps.data.files import OVERHEAD_BYTES, Columns, DataFile, to_tensor
from torchcaps.data.readers.bytes import FileFormatError
from torchcaps.data.readers.mat import find_array, read_mat

COUNTS = split_counts(train=73_257, test=26_032, extra=531_131)


def read_svhn(data: bytes, count: int) -> Columns:
    """Parse images ``[n 3 32 32]`` and labels 0..9 (the file's 10 is the digit 0)."""
    values = read_mat(data, names=("X", "y"), limit=count * (3072 + 64) + OVERHEAD_BYTES)
    pixels, labels = find_array(values, "X"), find_array(values, "y").reshape(-1)
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3):
        raise FileFormatError(f"its X has shape {pixels.shape}, not bytes of [32 32 3 n]")
    if len(labels) != pixels.shape[3] or not np.isin(labels, np.arange(1, 11)).all():
        raise FileFormatError("its y does not hold one label from 1 to 10 per image")
    images = to_tensor(pixels.transpose(3, 2, 0, 1))
    return {"images": images, "labels": to_tensor(labels.astype(np.int64) % 10)}


def _file(split: str, sha256: str, size: int) -> tuple[DataFile, ...]:
    name = f"{split}_32x32.mat"
    paths = (f"SVHN/{name}", name, f"svhn/{name}")
    url = f"ufldl.stanford.edu/housenumbers/{name}"
    download = Download(paths[0], (f"https://{url}", f"http://{url}"), f"sha256:{sha256}", size)
    return (DataFile(paths, (download.hash,) * 3, COUNTS[split], read_svhn, download),)


SVHN = Description(
    name="svhn",
    about="SVHN (cropped digits), 10 classes",
    source="files",
    counts=COUNTS,
    shape=(3, 32, 32),
    mean=(0.4377, 0.4438, 0.4728),
    std=(0.1980, 0.2010, 0.1970),
    homepage="http://ufldl.stanford.edu/housenumbers/",
    files={
        "train": _file(
            "train",
            "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            182_040_794,
        ),
        "test": _file(
            "test",
            "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            64_275_384,
        ),
        "extra": _file(
            "extra",
            "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3",
            1_329_278_602,
        ),
    },
)

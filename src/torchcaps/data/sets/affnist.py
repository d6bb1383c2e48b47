"""affNIST: MNIST's digits under random affine maps, on a 40x40 canvas."""

import numpy as np

from torchcaps.data.description import Description
from torchcaps.data.download import Download
from torchcaps.data.files import OVERHEAD_BYTES, Columns, DataFile, to_tensor
from torchcaps.data.readers.bytes import FileFormatError
from torchcaps.data.readers.mat import find_array, read_mat

N_FILES = 32
MAX_UNPACKED_BYTES = 5_342_000_000


def read_affnist(data: bytes, count: int) -> Columns:
    """Parse images ``[n 1 40 40]`` and labels of one file."""
    names = ("affNISTdata", "image", "label_int")
    limit = count * (1600 + 1024) + OVERHEAD_BYTES
    values = read_mat(data, names=names, limit=limit).get("affNISTdata")
    if not isinstance(values, dict):
        raise FileFormatError("it has no struct affNISTdata")
    pixels, labels = find_array(values, "image"), find_array(values, "label_int").reshape(-1)
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[0] != 1600:
        raise FileFormatError(f"its image has shape {pixels.shape}, not bytes of [1600 n]")
    if len(labels) != pixels.shape[1] or not np.isin(labels, np.arange(10)).all():
        raise FileFormatError("its label_int does not hold one label from 0 to 9 per image")
    images = to_tensor(pixels.T.reshape(-1, 1, 40, 40))
    return {"images": images, "labels": to_tensor(labels.astype(np.int64))}


def _files(folder: str, count: int, sha256: str, size: int) -> tuple[DataFile, ...]:
    url = f"www.cs.toronto.edu/~tijmen/affNIST/32x/transformed/{folder}.zip"
    archive = Download(
        f"affNIST/{folder}.zip",
        (f"https://{url}", f"http://{url}"),
        f"sha256:{sha256}",
        size,
        max_unpacked_bytes=MAX_UNPACKED_BYTES,
    )
    return tuple(
        DataFile(
            (f"affNIST/{folder}/{number}.mat",), ("",), count // N_FILES, read_affnist, archive
        )
        for number in range(1, N_FILES + 1)
    )


AFFNIST = Description(
    name="affnist",
    about="affNIST, 10 classes",
    source="files",
    counts={"train": 1_600_000, "fit": 1_600_000, "validation": 320_000, "test": 320_000},
    shape=(1, 40, 40),
    mean=(),
    std=(),
    homepage="https://www.cs.toronto.edu/~tijmen/affNIST/",
    files={
        "train": _files(
            "training_batches",
            1_600_000,
            "b6aa79e6d659111ff4c704c241cc86b828e468a5d6f7a1c5b888e6a3af3b3963",
            608_848_875,
        ),
        "validation": _files(
            "validation_batches",
            320_000,
            "c613d7718fd93f1fb2f6a90cc18b97f6ec2b76929559374f79aa7081bdfd358c",
            121_890_491,
        ),
        "test": _files(
            "test_batches",
            320_000,
            "83f829c01c021fa731e062e7671b0075a3e8de0a511fb6b5d403458528d0e0d1",
            121_959_509,
        ),
    },
)

"""smallNORB: stereo images of toys, with the pose of the camera."""

from dataclasses import replace

import numpy as np
import torch

from torchcaps.data.dataset import ImageSet
from torchcaps.data.description import Description, read_files, split_counts
from torchcaps.data.download import Download
from torchcaps.data.files import Columns, DataFile, DataFolder, to_tensor
from torchcaps.data.readers.bytes import FileFormatError
from torchcaps.data.readers.norb import read_norb

ANNOTATIONS = ("instance", "elevation", "azimuth", "lighting")


def read_images(data: bytes, count: int) -> Columns:
    """Parse images ``[n 2 96 96]``, one channel per camera."""
    images = read_norb(data, ndim=4, limit=count * 2 * 96 * 96)
    if images.dtype != np.uint8:
        raise FileFormatError("its images are not bytes")
    return {"images": to_tensor(images)}


def read_labels(data: bytes, count: int) -> Columns:
    """Parse labels ``[n]``."""
    return {"labels": to_tensor(read_norb(data, ndim=1, limit=count)).long()}


def read_annotations(data: bytes, count: int) -> Columns:
    """Parse the four annotations, each ``[n]``."""
    values = read_norb(data, ndim=2, limit=4 * count)
    if values.shape[1] != 4:
        raise FileFormatError(f"it has {values.shape[1]} annotations per image, not 4")
    return {name: to_tensor(values[:, i]).long() for i, name in enumerate(ANNOTATIONS)}


def _files(table: str) -> tuple[DataFile, ...]:
    words, files = table.split(), []
    for start, read in zip((0, 3, 6), (read_images, read_labels, read_annotations), strict=True):
        stem, size, sha256 = words[start : start + 3]
        name = f"smallnorb-5x{stem}.mat"
        paths = (f"smallNORB/{name}.gz", f"smallNORB/{name}", f"{name}.gz", name)
        url = f"cs.nyu.edu/~ylclab/data/norb-v1.0-small/{name}.gz"
        urls = (f"https://{url}", f"http://{url}")
        download = Download(paths[0], urls, f"sha256:{sha256}", int(size))
        files.append(DataFile(paths, (download.hash, "") * 2, 24_300, read, download))
    return tuple(files)


def read_cameras(description: Description, split: str, folder: DataFolder) -> ImageSet:
    """Load a split with the images of both cameras one after the other, ``[2n 1 96 96]``.

    ``annotations["camera"]`` is 0 or 1. An object's two images are in the same split.
    """
    counts = {name: count // 2 for name, count in description.counts.items()}
    stereo = read_files(replace(SMALLNORB, counts=counts, files=description.files), split, folder)
    n = len(stereo)
    values = {name: value.repeat(2) for name, value in stereo.annotations.items()}
    values["camera"] = torch.arange(2).repeat_interleave(n)
    return ImageSet(
        stereo.images.transpose(0, 1).flatten(0, 1)[:, None],
        stereo.labels.repeat(2),
        stereo.classes,
        name=description.name,
        split=split,
        indices=torch.cat([2 * stereo.indices, 2 * stereo.indices + 1]),
        annotations=values,
    )


SMALLNORB = Description(
    name="smallnorb",
    about="smallNORB, 5 classes",
    source="files",
    counts=split_counts(train=24_300, test=24_300),
    shape=(2, 96, 96),
    mean=(),
    std=(),
    homepage="https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/",
    classes=("animal", "human", "airplane", "truck", "car"),
    files={
        "train": _files(
            """
46789x9x18x6x2x96x96-training-dat 131896188
5ffd6272a07d32695ee1082a26a41a93a37aab8c28da047f8c34ed348d214873
46789x9x18x6x2x96x96-training-cat 348
2784e542c1922060691090952b6cd6278879a216c90f81476f0f00256d42cdaa
46789x9x18x6x2x96x96-training-info 71052
de7eb932ebe7a4ee16217fead60660d0eb3d23632c2f4d1c51f88c501c17bf32
"""
        ),
        "test": _files(
            """
01235x9x18x6x2x96x96-testing-dat 130799817
cf7104eed3e51174d2f65b66d1e5878b9da233b886f161b0d88f4510ba2c7474
01235x9x18x6x2x96x96-testing-cat 347
ecaf6d5bb8c3bc5eab9cf0258f6d2198dd474e016e374836fc097f2e5ff509ff
01235x9x18x6x2x96x96-testing-info 10428
16adf314226327ee006d1a44db8cfef52773c06c829951d5653a9f6f310248a2
"""
        ),
    },
)

SMALLNORB_MONO = replace(
    SMALLNORB,
    name="smallnorb_mono",
    about="smallNORB, each camera's image on its own",
    source="made from smallnorb",
    counts={split: 2 * count for split, count in SMALLNORB.counts.items()},
    shape=(1, 96, 96),
    read=read_cameras,
)

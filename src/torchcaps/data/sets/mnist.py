"""MNIST, and the description of sets that are made from its digits."""

from collections.abc import Callable

from torchcaps.data.dataset import ImageSet
from torchcaps.data.description import Description, read_files, split_counts
from torchcaps.data.files import DataFolder
from torchcaps.data.generated import FromDigits
from torchcaps.data.layouts.idx import idx_files

MNIST = Description(
    name="mnist",
    about="MNIST, 10 classes",
    source="files",
    counts=split_counts(train=60_000, test=10_000),
    shape=(1, 28, 28),
    mean=(0.1307,),
    std=(0.3081,),
    homepage="http://yann.lecun.com/exdb/mnist/",
    files=idx_files(
        "MNIST",
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "http://yann.lecun.com/exdb/mnist/",
        ),
        """
train-images-idx3-ubyte 9912422
440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
train-labels-idx1-ubyte 28881
3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
t10k-images-idx3-ubyte 1648877
8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
t10k-labels-idx1-ubyte 4542
f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2
""",
    ),
)


def made_from_mnist(
    make: Callable[[ImageSet], FromDigits],
    *,
    name: str,
    about: str,
    size: int,
    mean: float,
    std: float,
) -> Description:
    """Describe a set that is generated from MNIST's digits of the same split."""

    def read(description: Description, split: str, folder: DataFolder) -> FromDigits:
        return make(read_files(MNIST, split, folder))

    return Description(
        name=name,
        about=about,
        source="made from mnist",
        counts=MNIST.counts,
        shape=(1, size, size),
        mean=(mean,),
        std=(std,),
        files=MNIST.files,
        read=read,
    )

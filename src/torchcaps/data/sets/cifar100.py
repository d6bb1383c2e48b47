"""CIFAR-100."""

from torchcaps.data.description import Description, split_counts
from torchcaps.data.download import Download
from torchcaps.data.layouts.cifar import cifar_files

CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach
couch crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster
house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket
rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip
turtle wardrobe whale willow_tree wolf woman worm
"""

CIFAR100 = Description(
    name="cifar100",
    about="CIFAR-100, 100 classes",
    source="files",
    counts=split_counts(train=50_000, test=10_000),
    shape=(3, 32, 32),
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    classes=tuple(CLASSES.split()),
    files=cifar_files(
        Download(
            "cifar-100-python.tar.gz",
            (
                "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                "http://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            ),
            "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            size=169_001_437,
            max_unpacked_bytes=330_000_000,
        ),
        "cifar-100-python",
        "cifar-100-binary",
        ("coarse_labels", "fine_labels"),
        {
            "train": {"train": "16019d7e3df5f24257cddd939b257f8d"},
            "test": {"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
        },
    ),
)

"""An entry of the zoo, and the image shapes of the papers."""

from collections.abc import Callable
from dataclasses import dataclass

from torchcaps.models.network import ImageShape, Network


@dataclass(frozen=True)
class Entry:
    """A network that can be built by name.

    Attributes:
        make: called with the image shape and the number of classes; returns the network.
        image_shape: channels, height and width of the images.
        n_classes: number of classes.
        paper: the number of parameters that the paper prints.
        earlier: the factories of this name before corrections, oldest first. Weight files of that
            time still load. The first has the definition 1, and ``make`` the last.
    """

    make: Callable[..., Network]
    image_shape: ImageShape
    n_classes: int = 10
    paper: str = ""
    earlier: tuple[Callable[..., Network], ...] = ()

    @property
    def factories(self) -> tuple[Callable[..., Network], ...]:
        """The factories of all definitions, oldest first."""
        return (*self.earlier, self.make)


MNIST, MULTI, WIDE = (1, 28, 28), (1, 36, 36), (1, 40, 40)
CIFAR, CROP, NORB = (3, 32, 32), (3, 24, 24), (2, 32, 32)

"""What happens to an image before a network sees it, as data that travel with the weights."""

from torchcaps.preprocessing.description import Preprocessing as Preprocessing
from torchcaps.preprocessing.images import looks_inverted as looks_inverted

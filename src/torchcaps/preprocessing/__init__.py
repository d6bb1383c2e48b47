"""Preprocessing of images, described as data that travel with the weights."""

from torchcaps.preprocessing.description import Preprocessing as Preprocessing
from torchcaps.preprocessing.images import looks_inverted as looks_inverted

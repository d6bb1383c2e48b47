"""Data sets as uint8 tensors, batches of them made on the device, and sets drawn on the fly.

from torchcaps.data import Batches, Flip, Normalize, PadCrop, find, load

train, facts = load("cifar10").to("cuda"), find("cifar10")
transforms = [PadCrop(4), Flip(), Normalize(facts.mean, facts.std)]
for batch in Batches(train, 128, transforms=transforms).epoch(0):
batch.images, batch.labels
"""

from torchcaps.data.augment.distort import Elastic, Sometimes
from torchcaps.data.augment.transforms import (
    Affine,
    Brightness,
    CenterCrop,
    Channels,
    Contrast,
    Crop,
    Cutout,
    Flip,
    Mono,
    Normalize,
    PadCrop,
    Shift,
    Standardize,
    Transform,
)
from torchcaps.data.batches import Batches, Source, TorchDataset
from torchcaps.data.dataset import Batch, ImageSet
from torchcaps.data.files import data_folder
from torchcaps.data.generated import Generated
from torchcaps.data.image_folder import describe_folder, folder_parts, load_folder
from torchcaps.data.load import CATALOGUE, Entry, find, load, missing_files
from torchcaps.data.random import Draws, stream_key
from torchcaps.data.readers.bytes import FileFormatError
from torchcaps.data.sets.expanded import AffnistStyle, ExpandedMNIST
from torchcaps.data.sets.multimnist import DiverseMultiMNIST, MultiMNIST
from torchcaps.data.sets.strokes import POSE, PoseRange, Strokes, render
from torchcaps.data.sheet import contact_sheet, first_samples, save_png

__all__ = [
    "CATALOGUE",
    "POSE",
    "Affine",
    "AffnistStyle",
    "Batch",
    "Batches",
    "Brightness",
    "CenterCrop",
    "Channels",
    "Contrast",
    "Crop",
    "Cutout",
    "DiverseMultiMNIST",
    "Draws",
    "Elastic",
    "Entry",
    "ExpandedMNIST",
    "FileFormatError",
    "Flip",
    "Generated",
    "ImageSet",
    "Mono",
    "MultiMNIST",
    "Normalize",
    "PadCrop",
    "PoseRange",
    "Shift",
    "Sometimes",
    "Source",
    "Standardize",
    "Strokes",
    "TorchDataset",
    "Transform",
    "contact_sheet",
    "data_folder",
    "describe_folder",
    "find",
    "first_samples",
    "folder_parts",
    "load",
    "load_folder",
    "missing_files",
    "render",
    "save_png",
    "stream_key",
]

"""Data sets as uint8 tensors, batches made on the device, and sets drawn on demand.

from torchcaps.data import Batches, Flip, Normalize, PadCrop, find, load

train, facts = load("cifar10").to("cuda"), find("cifar10")
transforms = [PadCrop(4), Flip(), Normalize(facts.mean, facts.std)]
for batch in Batches(train, 128, transforms=transforms).epoch(0):
    batch.images, batch.labels
"""

from torchcaps.data.arrays import load_arrays as load_arrays
from torchcaps.data.augment import (
    Affine as Affine,
    Brightness as Brightness,
    CenterCrop as CenterCrop,
    Channels as Channels,
    Contrast as Contrast,
    Crop as Crop,
    Cutout as Cutout,
    Elastic as Elastic,
    Flip as Flip,
    Mono as Mono,
    Normalize as Normalize,
    PadCrop as PadCrop,
    Shift as Shift,
    Sometimes as Sometimes,
    Standardize as Standardize,
    Transform as Transform,
)
from torchcaps.data.batches import (
    Batches as Batches,
    Source as Source,
    TorchDataset as TorchDataset,
)
from torchcaps.data.dataset import Batch as Batch, ImageSet as ImageSet
from torchcaps.data.description import Description as Description
from torchcaps.data.files import data_folder as data_folder
from torchcaps.data.generated import FromDigits as FromDigits, Generated as Generated
from torchcaps.data.image_folder import load_folder as load_folder
from torchcaps.data.load import (
    describe_own as describe_own,
    find as find,
    load as load,
    load_own as load_own,
    missing_files as missing_files,
    own_parts as own_parts,
)
from torchcaps.data.random import Draws as Draws, stream_key as stream_key
from torchcaps.data.readers.bytes import FileFormatError as FileFormatError
from torchcaps.data.sets import SETS as SETS
from torchcaps.data.sets.affnist_style import AffnistStyle as AffnistStyle
from torchcaps.data.sets.diverse_multimnist import DiverseMultiMNIST as DiverseMultiMNIST
from torchcaps.data.sets.expanded_mnist import ExpandedMNIST as ExpandedMNIST
from torchcaps.data.sets.multimnist import MultiMNIST as MultiMNIST
from torchcaps.data.sets.strokes import PoseRange as PoseRange, Strokes as Strokes
from torchcaps.data.sets.waveforms import Waveforms as Waveforms
from torchcaps.data.sheet import (
    contact_sheet as contact_sheet,
    first_samples as first_samples,
    save_png as save_png,
)
from torchcaps.data.strokes.render import POSE as POSE, render as render
from torchcaps.data.transfer import DownloadError as DownloadError

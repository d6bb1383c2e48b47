"""Data sets as uint8 tensors, batches made on the device, and sets drawn on demand.

from torchcaps.data import Batches, Flip, Normalize, PadCrop, find, load

train, facts = load("cifar10").to("cuda"), find("cifar10")
transforms = [PadCrop(4), Flip(), Normalize(facts.mean, facts.std)]
for batch in Batches(train, 128, transforms=transforms).epoch(0):
    batch.images, batch.labels
"""

from torchcaps.data.augment import Affine as Affine
from torchcaps.data.augment import Brightness as Brightness
from torchcaps.data.augment import CenterCrop as CenterCrop
from torchcaps.data.augment import Channels as Channels
from torchcaps.data.augment import Contrast as Contrast
from torchcaps.data.augment import Crop as Crop
from torchcaps.data.augment import Cutout as Cutout
from torchcaps.data.augment import Elastic as Elastic
from torchcaps.data.augment import Flip as Flip
from torchcaps.data.augment import Mono as Mono
from torchcaps.data.augment import Normalize as Normalize
from torchcaps.data.augment import PadCrop as PadCrop
from torchcaps.data.augment import Shift as Shift
from torchcaps.data.augment import Sometimes as Sometimes
from torchcaps.data.augment import Standardize as Standardize
from torchcaps.data.augment import Transform as Transform
from torchcaps.data.batches import Batches as Batches
from torchcaps.data.batches import Source as Source
from torchcaps.data.batches import TorchDataset as TorchDataset
from torchcaps.data.dataset import Batch as Batch
from torchcaps.data.dataset import ImageSet as ImageSet
from torchcaps.data.description import Description as Description
from torchcaps.data.files import data_folder as data_folder
from torchcaps.data.generated import FromDigits as FromDigits
from torchcaps.data.generated import Generated as Generated
from torchcaps.data.image_folder import describe_folder as describe_folder
from torchcaps.data.image_folder import folder_parts as folder_parts
from torchcaps.data.image_folder import load_folder as load_folder
from torchcaps.data.load import find as find
from torchcaps.data.load import load as load
from torchcaps.data.load import missing_files as missing_files
from torchcaps.data.random import Draws as Draws
from torchcaps.data.random import stream_key as stream_key
from torchcaps.data.readers.bytes import FileFormatError as FileFormatError
from torchcaps.data.sets import SETS as SETS
from torchcaps.data.sets.affnist_style import AffnistStyle as AffnistStyle
from torchcaps.data.sets.diverse_multimnist import DiverseMultiMNIST as DiverseMultiMNIST
from torchcaps.data.sets.expanded_mnist import ExpandedMNIST as ExpandedMNIST
from torchcaps.data.sets.multimnist import MultiMNIST as MultiMNIST
from torchcaps.data.sets.strokes import PoseRange as PoseRange
from torchcaps.data.sets.strokes import Strokes as Strokes
from torchcaps.data.sheet import contact_sheet as contact_sheet
from torchcaps.data.sheet import first_samples as first_samples
from torchcaps.data.sheet import save_png as save_png
from torchcaps.data.strokes.render import POSE as POSE
from torchcaps.data.strokes.render import render as render
from torchcaps.data.transfer import DownloadError as DownloadError

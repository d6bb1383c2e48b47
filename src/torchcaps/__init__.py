"""torchcaps: capsule networks for PyTorch, correct to the papers."""

from types import ModuleType as _ModuleType

from torchcaps import data as data
from torchcaps.capsules import Capsules as Capsules, Output as Output, Routed as Routed
from torchcaps.captured import (
    CapturedNetwork as CapturedNetwork,
    CapturedStep as CapturedStep,
    precompile as precompile,
)
from torchcaps.export import export as export
from torchcaps.functional import (
    binary_cross_entropy_loss as binary_cross_entropy_loss,
    cross_entropy_loss as cross_entropy_loss,
    normalized_lengths as normalized_lengths,
    reconstruction_loss as reconstruction_loss,
    spread_loss as spread_loss,
    spread_margin as spread_margin,
)
from torchcaps.inference import (
    Prediction as Prediction,
    Scores as Scores,
    classify as classify,
    load as load,
)
from torchcaps.kernels import (
    lengths as lengths,
    margin_loss as margin_loss,
    squash as squash,
)
from torchcaps.layers import (
    CapsuleHead as CapsuleHead,
    ClassCapsules as ClassCapsules,
    ConvCapsules as ConvCapsules,
    ConvTransformCapsules as ConvTransformCapsules,
    Decoder as Decoder,
    DeconvolutionDecoder as DeconvolutionDecoder,
    FullyConnectedDecoder as FullyConnectedDecoder,
    LinearCapsules as LinearCapsules,
    PoseNorm as PoseNorm,
    PrimaryCapsules as PrimaryCapsules,
    RectifiedActivation as RectifiedActivation,
    Squash as Squash,
    VoteNorm as VoteNorm,
)
from torchcaps.models import (
    ARCapsNet as ARCapsNet,
    AttentionCapsNet as AttentionCapsNet,
    CapsNet as CapsNet,
    Classifier as Classifier,
    EfficientCapsNet as EfficientCapsNet,
    EMCapsNet as EMCapsNet,
    Ensemble as Ensemble,
    Network as Network,
    ResCapsNet as ResCapsNet,
    VariationalCapsNet as VariationalCapsNet,
    build as build,
    list_models as list_models,
    load_weights as load_weights,
    predict as predict,
    register_network as register_network,
    save as save,
)
from torchcaps.preprocessing import Preprocessing as Preprocessing
from torchcaps.routing import *  # every routing: its class and its function
from torchcaps.version import __version__ as __version__
from torchcaps.votes import Votes as Votes

__all__ = sorted(
    name
    for name, value in globals().items()
    if not name.startswith("_") and (value is data or not isinstance(value, _ModuleType))
)

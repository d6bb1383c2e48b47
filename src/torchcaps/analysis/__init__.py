"""What the papers measure about a trained capsule network, as numbers.

from torchcaps import analysis

subject = analysis.open_subject("runs/sabour2017/mnist/seed0")
batch = subject.batch(1000)
analysis.alignment(subject.network, batch.images, batch.labels).mean
"""

from torchcaps.analysis.adversarial import AdversarialCurve, adversarial, fgsm, pgd
from torchcaps.analysis.alignment import (
    PAPER_RANDOM,
    Alignment,
    alignment,
    alignment_ratio,
    random_alignment,
)
from torchcaps.analysis.equivariance import Equivariance, equivariance, pixel_equivariance
from torchcaps.analysis.outputs import features, in_parts
from torchcaps.analysis.parse import Node, ParseTree, RoutingMap, parse_tree, routing_map
from torchcaps.analysis.perturbation import (
    DimensionEffects,
    Perturbation,
    PoseCorrelation,
    dimension_effects,
    perturbation,
    pose_correlation,
    shape_of,
)
from torchcaps.analysis.reconstruction import Reconstructions, reconstructions
from torchcaps.analysis.robustness import CORRUPTIONS, AccuracyCurve, correct, robustness
from torchcaps.analysis.routing import (
    CapsuleUse,
    LayerConvergence,
    LayerEntropy,
    capsule_use,
    coupling_entropy,
    routing_convergence,
    routing_entropy,
)
from torchcaps.analysis.runs import (
    CostCurve,
    SpeedRow,
    TrainingCurve,
    comparable,
    cost_by_iterations,
    read_speed,
    training_curve,
)
from torchcaps.analysis.segmentation import Segmentation, iou, segment
from torchcaps.analysis.subjects import Prepared, Subject, open_subject
from torchcaps.analysis.trace import LayerTrace, trace
from torchcaps.analysis.walk import Walk, walk

__all__ = [
    "CORRUPTIONS",
    "PAPER_RANDOM",
    "AccuracyCurve",
    "AdversarialCurve",
    "Alignment",
    "CapsuleUse",
    "CostCurve",
    "DimensionEffects",
    "Equivariance",
    "LayerConvergence",
    "LayerEntropy",
    "LayerTrace",
    "Node",
    "ParseTree",
    "Perturbation",
    "PoseCorrelation",
    "Prepared",
    "Reconstructions",
    "RoutingMap",
    "Segmentation",
    "SpeedRow",
    "Subject",
    "TrainingCurve",
    "Walk",
    "adversarial",
    "alignment",
    "alignment_ratio",
    "capsule_use",
    "comparable",
    "correct",
    "cost_by_iterations",
    "coupling_entropy",
    "dimension_effects",
    "equivariance",
    "features",
    "fgsm",
    "in_parts",
    "iou",
    "open_subject",
    "parse_tree",
    "perturbation",
    "pgd",
    "pixel_equivariance",
    "pose_correlation",
    "random_alignment",
    "read_speed",
    "reconstructions",
    "robustness",
    "routing_convergence",
    "routing_entropy",
    "routing_map",
    "segment",
    "shape_of",
    "trace",
    "training_curve",
    "walk",
]

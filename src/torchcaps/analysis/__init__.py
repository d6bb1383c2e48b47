"""Measurements of trained capsule networks that the papers make, as numbers.

from torchcaps import analysis

subject = analysis.open_subject("runs/sabour2017/mnist/seed0")
batch = subject.batch(1000)
analysis.alignment(subject.network, batch.images, batch.labels).mean
"""

from torchcaps.analysis.adversarial import (
    AdversarialCurve as AdversarialCurve,
    adversarial as adversarial,
    fgsm as fgsm,
    pgd as pgd,
)
from torchcaps.analysis.alignment import (
    PAPER_RANDOM as PAPER_RANDOM,
    Alignment as Alignment,
    alignment as alignment,
    alignment_ratio as alignment_ratio,
    random_alignment as random_alignment,
)
from torchcaps.analysis.equivariance import (
    Equivariance as Equivariance,
    equivariance as equivariance,
    pixel_equivariance as pixel_equivariance,
)
from torchcaps.analysis.outputs import (
    features as features,
    in_parts as in_parts,
)
from torchcaps.analysis.parse import (
    Node as Node,
    ParseTree as ParseTree,
    RoutingMap as RoutingMap,
    parse_tree as parse_tree,
    routing_map as routing_map,
)
from torchcaps.analysis.perturbation import (
    DimensionEffects as DimensionEffects,
    Perturbation as Perturbation,
    PoseCorrelation as PoseCorrelation,
    dimension_effects as dimension_effects,
    perturbation as perturbation,
    pose_correlation as pose_correlation,
    shape_of as shape_of,
)
from torchcaps.analysis.reconstruction import (
    Reconstructions as Reconstructions,
    reconstructions as reconstructions,
)
from torchcaps.analysis.robustness import (
    CORRUPTIONS as CORRUPTIONS,
    AccuracyCurve as AccuracyCurve,
    correct as correct,
    robustness as robustness,
)
from torchcaps.analysis.routing import (
    CapsuleUse as CapsuleUse,
    LayerConvergence as LayerConvergence,
    LayerEntropy as LayerEntropy,
    capsule_use as capsule_use,
    coupling_entropy as coupling_entropy,
    routing_convergence as routing_convergence,
    routing_entropy as routing_entropy,
)
from torchcaps.analysis.runs import (
    CostCurve as CostCurve,
    TrainingCurve as TrainingCurve,
    comparable as comparable,
    cost_by_iterations as cost_by_iterations,
    training_curve as training_curve,
)
from torchcaps.analysis.segmentation import (
    Segmentation as Segmentation,
    iou as iou,
    segment as segment,
)
from torchcaps.analysis.subjects import (
    Prepared as Prepared,
    Subject as Subject,
    open_subject as open_subject,
)
from torchcaps.analysis.trace import (
    LayerTrace as LayerTrace,
    trace as trace,
)
from torchcaps.analysis.walk import (
    Walk as Walk,
    walk as walk,
)

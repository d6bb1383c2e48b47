"""What `torchcaps.analysis` measures, as pictures; matplotlib is imported here and nowhere else.

from torchcaps import analysis, figures

subject = analysis.open_subject("runs/sabour2017/mnist/seed0")
figures.report([subject], "figures", command="by hand")
"""

from torchcaps.figures.base import Effort, NotDrawnError
from torchcaps.figures.curves import (
    draw_adversarial,
    draw_alignment,
    draw_cosines,
    draw_cost,
    draw_equivariance,
    draw_robustness,
    draw_training,
)
from torchcaps.figures.gallery import GALLERY, check_names, demo_report, draw, report
from torchcaps.figures.images import (
    draw_effects,
    draw_perturbation,
    draw_pose_correlation,
    draw_reconstructions,
    draw_segmentation,
)
from torchcaps.figures.report import Picture, plain, write_report
from torchcaps.figures.routing import (
    draw_convergence,
    draw_entropy,
    draw_parse_tree,
    draw_routing_map,
    draw_use,
    draw_walk,
)
from torchcaps.figures.style import PALETTE, save

__all__ = [
    "GALLERY",
    "PALETTE",
    "Effort",
    "NotDrawnError",
    "Picture",
    "check_names",
    "demo_report",
    "draw",
    "draw_adversarial",
    "draw_alignment",
    "draw_convergence",
    "draw_cosines",
    "draw_cost",
    "draw_effects",
    "draw_entropy",
    "draw_equivariance",
    "draw_parse_tree",
    "draw_perturbation",
    "draw_pose_correlation",
    "draw_reconstructions",
    "draw_robustness",
    "draw_routing_map",
    "draw_segmentation",
    "draw_training",
    "draw_use",
    "draw_walk",
    "plain",
    "report",
    "save",
    "write_report",
]

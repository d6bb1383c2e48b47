"""Pictures of the numbers of `torchcaps.analysis`, and the only importer of matplotlib.

from torchcaps import analysis, figures

subject = analysis.open_subject("runs/sabour2017/mnist/seed0")
figures.report([subject], "figures", command="by hand")
"""

from torchcaps.figures.base import (
    Effort as Effort,
    NotDrawnError as NotDrawnError,
)
from torchcaps.figures.comparison import (
    draw_comparison as draw_comparison,
)
from torchcaps.figures.curves import (
    draw_adversarial as draw_adversarial,
    draw_alignment as draw_alignment,
    draw_cosines as draw_cosines,
    draw_cost as draw_cost,
    draw_equivariance as draw_equivariance,
    draw_robustness as draw_robustness,
    draw_routing_by_epoch as draw_routing_by_epoch,
    draw_training as draw_training,
)
from torchcaps.figures.estimate import estimate_seconds as estimate_seconds
from torchcaps.figures.gallery import (
    GALLERY as GALLERY,
    QUICK as QUICK,
    check_names as check_names,
    demo_report as demo_report,
    draw as draw,
    report as report,
    subject_folder as subject_folder,
)
from torchcaps.figures.images import (
    draw_effects as draw_effects,
    draw_perturbation as draw_perturbation,
    draw_pose_correlation as draw_pose_correlation,
    draw_reconstructions as draw_reconstructions,
    draw_segmentation as draw_segmentation,
)
from torchcaps.figures.report import (
    Picture as Picture,
    plain as plain,
    write_report as write_report,
)
from torchcaps.figures.routing import (
    draw_convergence as draw_convergence,
    draw_entropy as draw_entropy,
    draw_parse_tree as draw_parse_tree,
    draw_routing_map as draw_routing_map,
    draw_use as draw_use,
    draw_walk as draw_walk,
)
from torchcaps.figures.style import (
    PALETTE as PALETTE,
    save as save,
)

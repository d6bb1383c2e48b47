"""Figures of one network each; those of several networks stand side by side."""

from torch import Tensor

from torchcaps import analysis
from torchcaps.analysis import Subject
from torchcaps.analysis.outputs import evaluating
from torchcaps.analysis.segmentation import Choice
from torchcaps.figures import images, routing
from torchcaps.figures.base import Effort, Maker, NotDrawnError, each
from torchcaps.figures.report import Picture


def _one_object(subject: Subject) -> None:
    if subject.batch(1).labels.dim() > 1:
        raise NotDrawnError("its images show two objects each")


def _reconstructions(subject: Subject, effort: Effort) -> Picture:
    _one_object(subject)
    batch = subject.batch(effort.samples)
    result = analysis.reconstructions(subject.network, batch.images, batch.labels)
    data = {
        "error_label": result.error_label.mean(),
        "error_prediction": result.error_prediction.mean(),
        "failures": len(result.failures.labels),
        "images": len(batch.images),
    }
    return Picture(
        "reconstructions",
        "Reconstructions",
        "Input, reconstruction from label and from prediction",
        f"Test images and their reconstructions from the capsule of the label and from that of "
        f"the prediction (Sabour 2017, Fig. 3). {data['failures']} of {data['images']} images are "
        + (
            "misclassified; some of them are on the right."
            if data["failures"]
            else "misclassified."
        ),
        images.draw_reconstructions(result, classes=subject.source.classes),
        data,
    )


def _perturbation(subject: Subject, effort: Effort) -> Picture:
    _one_object(subject)
    batch = subject.batch(1)
    moved = analysis.perturbation(subject.network, batch.images, batch.labels)
    return Picture(
        "perturbation",
        "Dimension perturbation",
        "Each dimension of one capsule, moved",
        "One image; each row moves one dimension of its class capsule by the steps below and "
        "decodes the result (Sabour 2017, Fig. 4; Choi 2019, Fig. 3).",
        images.draw_perturbation(moved),
        {"steps": moved.steps, "class": moved.classes},
    )


def _dimensions(subject: Subject, effort: Effort) -> Picture:
    _one_object(subject)
    batch = subject.batch(effort.traced)
    moved = analysis.perturbation(subject.network, batch.images, batch.labels)
    result = analysis.dimension_effects(moved)
    return Picture(
        "dimensions",
        "What each dimension does",
        "Effect of each dimension on the drawing",
        f"Correlation of the step of a dimension with the moments of the drawings, over "
        f"{len(batch.images)} images of all classes, without each image's mean.",
        images.draw_effects(result),
        result,
    )


def _true_pose(subject: Subject, effort: Effort) -> Picture:
    _one_object(subject)
    batch = subject.batch(effort.samples)
    if "pose" not in batch.annotations:
        raise NotDrawnError(f"the true poses of {subject.dataset or 'its images'} are not known")
    result = analysis.pose_correlation(
        subject.network, batch.images, batch.labels, batch.annotations["pose"]
    )
    kind = int(batch.labels[0])
    return Picture(
        "true-pose",
        "Dimensions against the true pose",
        "Correlation with the true pose",
        f"Over {len(batch.images)} test images: correlation of every dimension of the capsule of "
        f"class {kind} with the true pose (left), and for every class the largest correlation of "
        "any dimension with each factor (right).",
        images.draw_pose_correlation(result, kind=kind),
        result,
    )


def _segmentation(subject: Subject, effort: Effort) -> Picture:
    batch = subject.batch(min(effort.samples, 500))
    if batch.targets is None or batch.labels.dim() != 2:
        raise NotDrawnError("its images show one object each")
    choices: tuple[Choice, ...] = ("labels", "predictions", "absent")
    shown = [
        (
            choice,
            analysis.segment(
                subject.network, batch.images, batch.labels, batch.targets, choice=choice
            ),
        )
        for choice in choices
    ]
    data = {name: {"iou": one.iou.mean(), "ink": one.ink.mean(dim=0)} for name, one in shown}
    return Picture(
        "segmentation",
        "Segmentation of overlapping digits",
        "Two digits separated",
        "The two drawings in orange and blue, from the labels, from the predictions, and from the "
        "first label and an absent class (*) (Sabour 2017, Fig. 5; Zhao 2020, Table 5). "
        f"IoU is over {len(batch.images)} images, ink is intensity of at least one half.",
        images.draw_segmentation(shown, batch.targets, columns=effort.shown),
        data,
    )


def _logits(subject: Subject, effort: Effort) -> Picture:
    batch = subject.batch(effort.traced)
    result = analysis.routing_convergence(subject.network, batch.images)
    return Picture(
        "logits",
        "Convergence of routing",
        "Change of logits, couplings and poses by iteration",
        f"Mean absolute change over {len(batch.images)} images by each of five iterations (Sabour "
        "2017, Fig. A.1). Logits of dynamic routing grow by the agreement in every iteration. "
        "Those of EM and inverted attention are the logarithm of the couplings. Routing has "
        "settled when poses no longer change.",
        routing.draw_convergence(result),
        result,
    )


def _entropy(subject: Subject, effort: Effort) -> Picture:
    batch = subject.batch(effort.traced)
    result = analysis.routing_entropy(subject.network, batch.images)
    if all(len(layer.entropies) == 1 for layer in result):
        raise NotDrawnError("it routes once, so there are no iterations to compare")
    return Picture(
        "entropy",
        "Entropy of couplings",
        "Entropy of the couplings by iteration",
        f"Mean entropy of the couplings of each layer over {len(batch.images)} images, relative "
        "to uniform couplings: 1 couples to all equally, 0 to a single one. Couplings that do "
        "not compete are scaled to sum to one.",
        routing.draw_entropy(result),
        result,
    )


def _use(subject: Subject, effort: Effort) -> Picture:
    batch = subject.batch(4 * effort.traced)
    result = analysis.capsule_use(subject.network, batch.images)
    return Picture(
        "use",
        "Dead and saturated capsules",
        "Presence of the capsules",
        f"Over {len(batch.images)} images: a dead capsule never reaches 1 % of the largest "
        "presence in its layer, a saturated one is always above 99 % of it. Presence is the "
        "activation or the length, which says nothing after layer normalization: it makes all "
        "poses about equally long.",
        routing.draw_use(result),
        result,
    )


def _map(subject: Subject, effort: Effort) -> Picture:
    batch = subject.batch(effort.shown)
    best = _scores(subject, batch.images).topk(2, dim=-1).indices
    first = analysis.routing_map(subject.network, batch.images, best[:, 0])
    second = analysis.routing_map(subject.network, batch.images, best[:, 1])
    return Picture(
        "routing-map",
        "Routing maps",
        "Which positions feed a class capsule",
        "Shares of the votes (coupling times length), followed from the class capsule down "
        "through all capsule layers to the primary capsules, and drawn at the centers of their "
        "receptive fields: for the class with the highest score and for the runner-up.",
        routing.draw_routing_map(
            batch.images,
            [("best class", first), ("runner-up", second)],
            classes=subject.source.classes,
        ),
        {"classes": best, "relevance": first.relevance},
    )


def _tree(subject: Subject, effort: Effort) -> Picture:
    batch = subject.batch(1)
    objects = batch.labels.shape[1] if batch.labels.dim() == 2 else 1
    roots = _scores(subject, batch.images)[0].topk(objects).indices.tolist()
    tree = analysis.parse_tree(subject.network, batch.images, classes=tuple(roots))
    return Picture(
        "parse-tree",
        "Parse tree",
        "The strongest branches of one image",
        "From the class capsule with the highest score down: the three children with the largest "
        "share in each capsule, nine on the last level, and their positions in the image.",
        routing.draw_parse_tree(tree, batch.images, classes=subject.source.classes),
        tree,
    )


def _walk(subject: Subject, effort: Effort) -> Picture:
    batch = subject.batch(1)
    result = analysis.walk(subject.network, batch.images)
    return Picture(
        "walk",
        "From pixels to scores",
        "One image on its way through the network",
        "The image, the presence of the primary capsules at every position, the couplings of the "
        "child with the largest share in the winning class after each iteration, and the scores.",
        routing.draw_walk(result, classes=subject.source.classes),
        {name: value for name, value in vars(result).items() if name != "image"},
    )


def _scores(subject: Subject, shown: Tensor) -> Tensor:
    with evaluating(subject.network):
        scores: Tensor = subject.network(shown).scores
    return scores


SINGLE: dict[str, Maker] = {
    "walk": each(_walk),
    "reconstructions": each(_reconstructions),
    "perturbation": each(_perturbation),
    "dimensions": each(_dimensions),
    "true-pose": each(_true_pose),
    "segmentation": each(_segmentation),
    "logits": each(_logits),
    "entropy": each(_entropy),
    "use": each(_use),
    "routing-map": each(_map),
    "parse-tree": each(_tree),
}
"""Figure name -> its maker."""

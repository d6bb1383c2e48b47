"""Model cards of the Hugging Face Hub: what a network is, what it scored, and where it is from."""

import json

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from torchcaps.models.network import Network
from torchcaps.models.weights.facts import has_recorded_weights
from torchcaps.routing import Routing

HOME = "https://github.com/torchcaps/torchcaps"
DATASETS = {
    "mnist": "ylecun/mnist",
    "fashion-mnist": "zalando-datasets/fashion_mnist",
    "cifar10": "uoft-cs/cifar10",
    "cifar100": "uoft-cs/cifar100",
    "svhn": "ufldl-stanford/svhn",
}
"""Data set -> its name on the Hub; other sets have none there."""

CARD = """---
{{ card_data }}
---

# {{ title }}

A capsule network with {{ n_parameters }} parameters, made with [torchcaps]({{ home }}). It sorts
images of {{ channels }} x {{ height }} x {{ width }} pixels into {{ n_classes }} classes.

```python
import torchcaps as tc

net = tc.Network.from_pretrained("owner/name")  # the name of this repository
tc.classify(net, "image.png")
```

Classes: {{ classes }}.

Preprocessing, which `net.preprocess` applies: {{ preprocessing }}.

## Results
{% if facts %}
{{ metric }} on the test images of {{ data }}: {{ test }} %.

| fact | value |
|---|---|
{% for name, value in facts %}| {{ name }} | {{ value }} |
{% endfor %}
At that commit of the code, `torchcaps train {{ recipe }} --seed {{ seed }}` repeats the run.
{% else %}
No result is recorded: these weights are not those of a scored run of torchcaps.
{% endif %}"""

HEADINGS = {
    "recipe": "recipe",
    "seed": "seed",
    "epochs": "epochs",
    "modified": "changed settings",
    "validation": "accuracy on held-out images (%)",
    "test": "accuracy on test images (%)",
    "images": "test images",
    "commit": "commit of the code",
    "weights_sha256": "SHA-256 of the run's weights",
    "store": "stored as",
}
"""Fact -> its name in the card; the order of the table."""


def model_card(network: Network) -> ModelCard:
    """Return the card of a network.

    Results appear only while the weights are those that the recorded run scored.
    """
    facts = dict(network.trained) if has_recorded_weights(network) else {}
    if not {"recipe", "test"} <= facts.keys():
        facts = {}
    title = str(facts.get("recipe") or network.name or type(network).__name__)
    data = str(facts.get("data") or dataset_of(title))
    metric = _metric(network)
    channels, height, width = network.image_shape
    preprocessing = network.preprocessing
    card: ModelCard = ModelCard.from_template(
        card_data=_metadata(network, facts, title, data, metric),
        template_str=CARD,
        title=title,
        home=HOME,
        channels=channels,
        height=height,
        width=width,
        n_classes=network.n_classes,
        n_parameters=f"{network.n_parameters:,}",
        classes=", ".join(network.class_names or map(str, range(network.n_classes))),
        preprocessing=f"`{json.dumps(preprocessing.to_json())}`" if preprocessing else "unknown",
        metric=metric,
        data=data,
        test=f"{facts.get('test', 0):.2f}",
        recipe=facts.get("recipe"),
        seed=facts.get("seed"),
        facts=[
            (text, facts[key]) for key, text in HEADINGS.items() if facts.get(key) not in (None, "")
        ],
    )
    return card


def dataset_of(name: str) -> str:
    """Return the data set in a name of the form ``paper/dataset-variant``."""
    variant = name.rpartition("/")[2]
    two_words = [data for data in ("fashion-mnist", "affnist-style") if variant.startswith(data)]
    return two_words[0] if two_words else variant.partition("-")[0]


def _metric(network: Network) -> str:
    if network.n_objects > 1:
        return f"Accuracy (all {network.n_objects} classes right)"
    return "Accuracy"


def _metadata(
    network: Network, facts: dict[str, str | int | float], title: str, data: str, metric: str
) -> ModelCardData:
    routings = {type(part).__name__ for part in network.modules() if isinstance(part, Routing)}
    results = None
    if facts:
        results = [
            EvalResult(
                task_type="image-classification",
                dataset_type=DATASETS.get(data, data),
                dataset_name=data,
                dataset_split="test",
                metric_type="accuracy",
                metric_name=f"{metric}, percent",
                metric_value=facts["test"],
            )
        ]
    return ModelCardData(
        library_name="torchcaps",
        pipeline_tag="image-classification",
        tags=["capsule-network", *sorted(routings)],
        datasets=DATASETS[data] if facts and data in DATASETS else None,
        metrics=["accuracy"],
        model_name=title,
        eval_results=results,
    )

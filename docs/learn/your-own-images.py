# ---
# jupytext:
#   text_representation: {extension: .py, format_name: percent}
# kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Train on your own images
#
# torchcaps reads a folder with one folder per class. Here we write such a folder ourselves: three kinds of shapes, 60 images
# each.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from PIL import Image, ImageDraw

import torchcaps as tc

folder = Path(tempfile.mkdtemp()) / "shapes"
generator = torch.Generator().manual_seed(0)


def draw(kind, x, y, r):
    """Return an image of one shape."""
    image = Image.new("L", (32, 32))
    pen = ImageDraw.Draw(image)
    box = (x - r, y - r, x + r, y + r)
    if kind == "disk":
        pen.ellipse(box, fill=255)
    elif kind == "square":
        pen.rectangle(box, fill=255)
    else:
        pen.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], fill=255)
    return image


for kind in ("disk", "square", "triangle"):
    (folder / kind).mkdir(parents=True)
    for number in range(60):
        x, y, r = (
            torch.rand(3, generator=generator)
            .mul(torch.tensor([8.0, 8.0, 5.0]))
            .add(torch.tensor([12.0, 12.0, 6.0]))
        )
        draw(kind, float(x), float(y), float(r)).save(folder / kind / f"{number}.png")

figure, axes = plt.subplots(1, 6, figsize=(8, 1.7))
for axis, path in zip(axes, sorted(folder.rglob("[01].png")), strict=True):
    axis.imshow(Image.open(path), cmap="gray")
    axis.set_title(path.relative_to(folder), fontsize=8)
    axis.set_axis_off()
plt.show()

# %% [markdown]
# ## One command
#
# Any recipe trains on the folder. A tenth of the images is held out for the score, because the folder has no test part.
#
# ```
# torchcaps train demo/strokes-pairwise --data shapes --set epochs=15 --set batch_size=16
# ```
#
# The same from Python:

# %%
from torchcaps.recipes import get
from torchcaps.train import TrainOptions, train as run

recipe = get("demo/strokes-pairwise").override(epochs=15, batch_size=16)
row = run(recipe, TrainOptions(own_data=folder, out=folder.parent / "run", device="cpu"))
print(
    f"{row.validation:.1f} % of the held-out images after {row.epochs} epochs, {row.seconds:.0f} s"
)

# %% [markdown]
# The run folder keeps the settings, the class names, the score of every epoch and the weights.
#
# ## Use the network

# %%
net = tc.load(folder.parent / "run")
picture = draw("triangle", 16.0, 15.0, 9.0)
best = tc.classify(net, [picture])[0]
print(best)

# %% [markdown]
# ## The same in your own loop
#
# A network is an ordinary PyTorch module. `load` reads the folder, and `Batches` makes augmented batches on the device.

# %%
from torchcaps.data import Batches, Shift, load

train = load(folder, "train")
model = tc.build("demo/strokes-pairwise", image_shape=(1, 32, 32), n_classes=3)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
batches = Batches(train, 16, transforms=[Shift(2)], seed=0)
for epoch in range(8):
    correct = 0
    for batch in batches.epoch(epoch):
        scores = model(batch.images).scores
        loss = tc.cross_entropy_loss(scores, batch.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct += int((scores.argmax(dim=1) == batch.labels).sum())
    print(
        f"epoch {epoch + 1}: loss {loss.item():.3f}, {100 * correct / len(train):.0f} % of the training images correct"
    )

# ---
# jupytext:
#   text_representation: {extension: .py, format_name: percent}
# kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Two digits at once
#
# Overlapping digits are what routing is for: a pixel of ink belongs to one digit or to both, and routing sends each part to the
# right whole. We take a network trained on overlapping MNIST digits and let it separate digits that it has never seen.

# %%
import matplotlib.pyplot as plt
import torch

import torchcaps as tc
from torchcaps import analysis
from torchcaps.data import Batches, PoseRange, Strokes

net = tc.build("sabour2017/multimnist-modern", pretrained=True).eval()
poses = PoseRange(shift=0.08, rotation=8, scale=(0.85, 1.0), shear=0.15, thickness=(0.06, 0.09))
pairs = Strokes(200, size=36, overlapping=True, split="test", seed=1, poses=poses)
batch = next(iter(Batches(pairs, 200).epoch(0)))

# %% [markdown]
# An image has two labels. `predict` with `top=2` returns zeros and ones, with ones for the two longest capsules.

# %%
with torch.no_grad():
    out = net(batch.images)
predicted = tc.predict(out.scores, top=2)  # [200, 10]
both = predicted.gather(1, batch.labels).all(dim=1)
print(f"both digits right: {int(both.sum())} of {len(both)}")

# %% [markdown]
# The network has only seen digits written by people, and these are generated from strokes. The decoder draws each of the two
# class capsules alone:

# %%
chosen = both.nonzero().flatten()[:6]
apart = analysis.segment(net, batch.images[chosen], batch.labels[chosen], batch.targets[chosen])
figure, axes = plt.subplots(2, len(chosen), figsize=(9, 3.2))
for column, (image, drawings, names) in enumerate(
    zip(apart.images, apart.drawings, apart.chosen, strict=True)
):
    axes[0, column].imshow(image[0].numpy(), cmap="gray")
    first, second = drawings[:, 0]
    colors = torch.stack([first, (first + second) / 2, second], dim=-1).clamp(0, 1)
    axes[1, column].imshow(colors.numpy())
    axes[1, column].set_title(f"{names[0]} and {names[1]}")
for axis in axes.flat:
    axis.set_axis_off()
plt.show()
print(f"overlap with the true digits (intersection over union): {apart.iou.mean():.2f}")

# %% [markdown]
# Red is the first digit, blue the second. [Looking inside](../looking-inside.md) shows the same on MNIST digits.
#
# ## Your own images with several objects
#
# Train with `binary_cross_entropy_loss` on targets of zeros and ones, and read the classes with a threshold:

# %%
head = tc.CapsuleHead(32, n_classes=5)
scores = head(torch.rand(2, 32, 8, 8)).scores
targets = torch.tensor([[1.0, 0, 0, 1, 0], [0, 1.0, 0, 0, 0]])
loss = tc.binary_cross_entropy_loss(scores, targets)
present = tc.predict(scores, threshold=0.5)
print(f"loss {loss.item():.2f}, classes above one half: {present.sum(dim=1).tolist()}")

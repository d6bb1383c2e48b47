# ---
# jupytext:
#   text_representation: {extension: .py, format_name: percent}
# kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Two digits at once
#
# Two digits that overlap are a hard case for a classifier, because a pixel of ink may belong to one digit, to the other or to
# both. Routing was made for this case: every part has to choose the digit that it belongs to. We take a network that was trained
# on overlapping MNIST digits, and let it separate digits of a kind that it has never seen.

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
# ## Read both digits
#
# The length of a class capsule says whether its digit is there, and several capsules can be long at once. `predict`
# with `top=2` returns zeros and ones, with ones for the two longest capsules.

# %%
with torch.no_grad():
    out = net(batch.images, couplings=True)
predicted = tc.predict(out.scores, top=2)  # [200, 10]
both = predicted.gather(1, batch.labels).all(dim=1)
print(f"both digits right: {int(both.sum())} of {len(both)}")

# %% [markdown]
# ## What the iterations do
#
# The network routes three times. `set_iterations` changes that without new training. With one iteration, every child is coupled
# equally to all ten digits.

# %%
for iterations in (1, 2, 3):
    net.set_iterations(iterations)
    with torch.no_grad():
        scores = net(batch.images).scores
    first, second, third = scores.topk(3).values.mean(dim=0).tolist()
    right = tc.predict(scores, top=2).gather(1, batch.labels).all(dim=1).sum()
    print(
        f"iterations {iterations}: mean lengths {first:.2f}, {second:.2f}, then {third:.2f}; both right {right}"
    )

# %% [markdown]
# The two longest capsules are clear winners only after three iterations. Their order hardly changes, so the number of right
# answers hardly changes either.
#
# ## Where the parts go
#
# A child starts with a coupling of 0.1 to each of the ten digits. The picture shows what its coupling gained by routing, added up
# over the 32 types of capsules at each position: orange for the first digit, blue for the second.

# %%
chosen = both.nonzero().flatten()[:6]
couplings = out.couplings[0][chosen].unflatten(1, (10, 10, 32))  # [b h w i n]
gained = (couplings - 0.1).clamp_min(0).sum(dim=3)  # [b h w n]


def two_colors(first, second):
    """Return the first image in orange and the second in blue; both together are white."""
    return torch.stack([first, (first + second) / 2, second], dim=-1).clamp(0, 1).numpy()


figure, axes = plt.subplots(2, len(chosen), figsize=(9, 3.4))
for column, index in enumerate(chosen):
    labels = batch.labels[index]
    first, second = gained[column, ..., labels].movedim(-1, 0) / gained[column, ..., labels].max()
    axes[0, column].imshow(batch.images[index, 0].numpy(), cmap="gray")
    axes[0, column].set_title(f"{labels[0]} and {labels[1]}")
    axes[1, column].imshow(two_colors(first, second))
for axis in axes.flat:
    axis.set_axis_off()
plt.show()

# %% [markdown]
# The two colors lie at different positions, often near the strokes of their digit. At dark positions the children stay undecided,
# or choose another digit.
#
# ## Draw each digit alone
#
# The network has only seen digits written by people, and these are generated. The decoder draws each of the two class capsules
# alone, in the same colors:

# %%
apart = analysis.segment(net, batch.images[chosen], batch.labels[chosen], batch.targets[chosen])
figure, axes = plt.subplots(2, len(chosen), figsize=(9, 3.2))
for column, (image, drawings, names) in enumerate(
    zip(apart.images, apart.drawings, apart.chosen, strict=True)
):
    axes[0, column].imshow(image[0].numpy(), cmap="gray")
    first, second = drawings[:, 0]
    axes[1, column].imshow(two_colors(first, second))
    axes[1, column].set_title(f"{names[0]} and {names[1]}")
for axis in axes.flat:
    axis.set_axis_off()
plt.show()
print(f"overlap with the true digits (intersection over union): {apart.iou.mean():.2f}")

# %% [markdown]
# [Looking inside](../looking-inside.md) shows the same on MNIST digits.
#
# ## Your own images with several objects
#
# Train with `binary_cross_entropy_loss` on targets of zeros and ones. Then read the classes with a threshold:

# %%
head = tc.CapsuleHead(32, n_classes=5)
scores = head(torch.rand(2, 32, 8, 8)).scores
targets = torch.tensor([[1.0, 0, 0, 1, 0], [0, 1.0, 0, 0, 0]])
loss = tc.binary_cross_entropy_loss(scores, targets)
present = tc.predict(scores, threshold=0.5)
print(f"loss {loss.item():.2f}, classes above one half: {present.sum(dim=1).tolist()}")

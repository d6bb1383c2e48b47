# ---
# jupytext:
#   text_representation: {extension: .py, format_name: percent}
# kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # What is a capsule?
#
# An ordinary unit of a network is one number: how strongly a feature is present. A **capsule** is a small vector. Its length
# says whether something is there, and its direction says how it looks. This page looks at the capsules of a trained network:
# CapsNet of [Sabour 2017](../papers/sabour2017.md), which reads handwritten digits.

# %%
import matplotlib.pyplot as plt
import torch

import torchcaps as tc
from torchcaps import analysis
from torchcaps.data import first_samples, load

net = tc.build("sabour2017/mnist", pretrained=True).eval()
images = net.preprocess(first_samples(load("strokes", "test"), 8))

# %% [markdown]
# The network has ten class capsules of 16 numbers, one for each digit. Their lengths are its scores.

# %%
with torch.no_grad():
    out = net(images, couplings=True)
lengths = tc.lengths(out.capsules.poses)
print("poses [image, class, number]:", list(out.capsules.poses.shape))
print("lengths of the first image:", [round(n, 2) for n in lengths[0].tolist()])

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.6))
left.imshow(images[0, 0].numpy(), cmap="gray")
left.set_axis_off()
right.bar(range(10), out.scores[0].tolist())
right.set_xticks(range(10))
right.set_xlabel("digit")
right.set_ylabel("length of its capsule")
plt.show()

# %% [markdown]
# ## The direction says how the digit looks
#
# A decoder draws an image from the 16 numbers of one capsule. If we move one number and draw again, the digit changes its shape
# but stays the same digit.

# %%
moved = analysis.perturbation(net, images[:1], out.scores[:1].argmax(dim=1))
drawings = moved.drawings[0]  # one row for each of the 16 numbers
figure, axes = plt.subplots(4, drawings.shape[1], figsize=(9, 3.6))
for row, dimension in zip(axes, (0, 4, 8, 12), strict=True):
    for axis, drawing in zip(row, drawings[dimension], strict=True):
        axis.imshow(drawing[0].numpy(), cmap="gray")
        axis.set(xticks=[], yticks=[])
    row[0].set_ylabel(f"number {dimension}", rotation=0, ha="right", va="center")
figure.supxlabel("from 0.25 less to 0.25 more")
plt.show()

# %% [markdown]
# Each row moves one of the 16 numbers. Most numbers mix several properties, such as slant and width. The explorer does the same
# with sliders: `torchcaps explore`.
#
# ## Where do capsules come from?
#
# The first capsules, called *primary*, are ordinary features of a convolution in groups of eight. Every primary capsule then
# **votes** for the pose of every digit: it multiplies its pose by a learned matrix. **Routing** decides which votes count.

# %%
couplings = out.couplings[-1]
print("couplings [image, child, digit]:", list(couplings.shape))
sums = couplings[0].sum(dim=-1)
print(f"the couplings of each child sum to 1, up to {(sums - 1).abs().max():.0e}")

# %% [markdown]
# A coupling is the share of a child that goes to one digit. It starts at 0.1 for each of the ten digits. Here are the children
# with the largest couplings to the winner:

# %%
winner = int(out.scores[0].argmax())
strongest = couplings[0, :, winner].sort(descending=True)
figure, axis = plt.subplots(figsize=(7, 2.6))
axis.plot(strongest.values[:100].numpy())
axis.axhline(0.1, color="gray", linestyle=":")
axis.set_xlabel("the 100 children with the largest couplings, of 1,152")
axis.set_ylabel(f"coupling to digit {winner}")
plt.show()

# %% [markdown]
# The next page takes routing apart: [routing in five cells](routing-in-five-cells.py).

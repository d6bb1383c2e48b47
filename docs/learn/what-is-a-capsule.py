# ---
# jupytext:
#   text_representation: {extension: .py, format_name: percent}
# kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # What is a capsule?
#
# An ordinary unit of a network is one number: how strongly a feature is present. A **capsule** is a small vector. Its length
# says whether something is there, and its direction says how it looks. This page takes a trained network and looks at its
# capsules.

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
print("poses:", list(out.capsules.poses.shape))
print(
    "lengths of the first image:", [round(n, 2) for n in tc.lengths(out.capsules.poses)[0].tolist()]
)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.6))
left.imshow(images[0, 0], cmap="gray")
left.set_axis_off()
right.bar(range(10), out.scores[0])
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
        axis.imshow(drawing[0], cmap="gray")
        axis.set_axis_off()
plt.show()

# %% [markdown]
# Each row moves one of the 16 numbers from low to high. Most numbers mix several properties, such as slant and width.
#
# ## Where do capsules come from?
#
# The first capsules, called *primary*, are ordinary features of a convolution in groups of eight. Every primary capsule then
# **votes** for the pose of every digit: it multiplies its pose by a learned matrix. **Routing** decides which votes count.

# %%
couplings = out.couplings[-1]
print("children x digits:", list(couplings.shape[1:]))
print("each child shares itself out:", couplings[0].sum(dim=-1)[:3].tolist())

# %% [markdown]
# The next page takes routing apart: [routing in five cells](routing-in-five-cells.py).

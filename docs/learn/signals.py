# ---
# jupytext:
#   text_representation: {extension: .py, format_name: percent}
# kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Signals and sequences
#
# Capsule layers work on images `[b c h w]`. A one-dimensional signal is an image of height 1, and a kernel of `(1, 5)` slides
# along it. The generated data set `waveforms` has noisy signals of eight shapes.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import torchcaps as tc
from torchcaps.data import Batches, Normalize, find, load

torch.manual_seed(0)
facts = find("waveforms")
transforms = [Normalize(facts.mean, facts.std)]
test = next(iter(Batches(load("waveforms", "test"), 1000, transforms=transforms).epoch(0)))
print("signals [b c h w]:", list(test.images.shape))

figure, axes = plt.subplots(2, 4, figsize=(9, 3), sharex=True, sharey=True)
for label, (axis, name) in enumerate(zip(axes.flat, facts.classes, strict=True)):
    axis.plot(test.images[test.labels == label][0, 0, 0].numpy(), linewidth=0.8)
    axis.set_title(name, fontsize=9)
plt.show()

# %% [markdown]
# ## A head on a convolution
#
# The backbone is three convolutions of height 1, and `CapsuleHead` takes their feature map.

# %%
model = nn.Sequential(
    nn.Conv2d(1, 32, (1, 9), (1, 2)),
    nn.ReLU(),
    nn.Conv2d(32, 32, (1, 7), (1, 4)),
    nn.ReLU(),
    nn.Conv2d(32, 64, (1, 5), (1, 2)),
    nn.ReLU(),
    tc.CapsuleHead(64, n_classes=8, n_types=8),
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
batches = Batches(load("waveforms"), 64, transforms=transforms, seed=0)
for _, batch in zip(range(300), batches.epoch(0)):
    loss = tc.cross_entropy_loss(model(batch.images).scores, batch.labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# %%
with torch.no_grad():
    right = tc.predict(model(test.images).scores) == test.labels
print(f"{100 * right.float().mean():.1f} % of 1,000 new signals")

# %% [markdown]
# `torchcaps train demo/waveforms` trains a network with convolutional capsules on the same data.
#
# ## Convolutional capsules along a signal
#
# `ConvCapsules` takes kernels of height 1 as well. Each of its windows sees three neighboring positions:

# %%
primary = tc.PrimaryCapsules(32, 4, 8, kernel_size=(1, 3), stride=(1, 2), nonlinearity=tc.PoseNorm)
conv = tc.ConvCapsules(4, 4, 8, 8, kernel_size=(1, 3), routing=tc.InvertedAttentionRouting)
grid = conv(primary(torch.rand(2, 32, 1, 29)))
print("[batch, height, positions, types, pose]:", list(grid.poses.shape))

# %% [markdown]
# ## Sequences of tokens
#
# Tokens `[b n c]`, such as words or image patches, go into the head directly. A batch of sequences of different lengths is padded
# to the longest. The mask says which tokens are present, and the padding then changes nothing:

# %%
head = tc.CapsuleHead(16, n_classes=4, n_types=4).eval()
short, long = torch.rand(1, 5, 16), torch.rand(1, 12, 16)
padded = torch.zeros(2, 12, 16)
padded[0, :5], padded[1] = short, long
mask = torch.arange(12) < torch.tensor([[5], [12]])  # [b n], False for padding
with torch.no_grad():
    together = head(padded, mask).scores
    alone = torch.cat([head(short).scores, head(long).scores])
print(f"largest difference between padded and alone: {(together - alone).abs().max():.0e}")

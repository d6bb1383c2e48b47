# ---
# jupytext:
#   text_representation: {extension: .py, format_name: percent}
# kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Signals and sequences
#
# Capsule layers work on images `[b c h w]`. A one-dimensional signal is an image of height 1, and a kernel of `(1, 5)` slides
# along it. We classify three kinds of noisy waves.

# %%
import torch
from torch import nn

import torchcaps as tc

torch.manual_seed(0)


def waves(count):
    """Return signals [b 1 1 128] of three shapes with random phase, frequency and noise, and their labels."""
    labels = torch.randint(3, (count,))
    phase, frequency = 6.28 * torch.rand(count, 1), 2 + 2 * torch.rand(count, 1)
    angle = 6.28 * frequency * torch.linspace(0, 1, 128) + phase
    sine, square = angle.sin(), angle.sin().sign()
    saw = 2 * (angle / 6.28 % 1) - 1
    signals = torch.stack([sine, square, saw])[labels, torch.arange(count)]
    return (signals + 0.3 * torch.randn(count, 128))[:, None, None], labels


signals, labels = waves(4)
print(list(signals.shape))

# %% [markdown]
# The backbone is a convolution of height 1, and `CapsuleHead` takes its feature map.

# %%
model = nn.Sequential(
    nn.Conv2d(1, 32, (1, 7), (1, 2)),
    nn.ReLU(),
    nn.Conv2d(32, 32, (1, 5), (1, 2)),
    nn.ReLU(),
    tc.CapsuleHead(32, n_classes=3, n_types=8),
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(150):
    signals, labels = waves(64)
    loss = tc.cross_entropy_loss(model(signals).scores, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
signals, labels = waves(1000)
with torch.no_grad():
    right = tc.predict(model(signals).scores) == labels
print(f"{100 * right.float().mean():.1f} % of 1,000 new signals")

# %% [markdown]
# ## Convolutional capsules along a signal

# %%
primary = tc.PrimaryCapsules(32, 4, 8, kernel_size=(1, 3), stride=(1, 2), nonlinearity=tc.PoseNorm)
conv = tc.ConvCapsules(4, 4, 8, 8, kernel_size=(1, 3), routing=tc.InvertedAttentionRouting)
grid = conv(primary(torch.rand(2, 32, 1, 29)))
print(list(grid.poses.shape), "batch, height 1, positions, types, pose")

# %% [markdown]
# ## Sequences of tokens
#
# Tokens `[b n c]` of any length go into the head directly:

# %%
head = tc.CapsuleHead(16, n_classes=4, n_types=4)
for length in (5, 12):
    print(length, "tokens:", list(head(torch.rand(2, length, 16)).scores.shape))

# ---
# jupytext:
#   text_representation: {extension: .py, format_name: percent}
# kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # A capsule head on your backbone
#
# `CapsuleHead` turns the features of any network into class capsules. It takes a feature map `[b c h w]`, as a ResNet makes, or
# tokens `[b n c]`, as a vision transformer makes.
#
# ## On a feature map
#
# With torchvision installed, a pretrained ResNet is one line:
#
# ```
# resnet = torchvision.models.resnet18(weights="DEFAULT")
# model = nn.Sequential(*list(resnet.children())[:-2], tc.CapsuleHead(512, n_classes=7))
# ```
#
# Here we use a small residual backbone, so that the page runs in seconds.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import torchcaps as tc
from torchcaps.data import Batches, Normalize, find, load

torch.manual_seed(0)


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(),
            nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(c_out),
        )
        self.shortcut = nn.Conv2d(c_in, c_out, 1, stride, bias=False)

    def forward(self, x):
        return (self.path(x) + self.shortcut(x)).relu()


backbone = nn.Sequential(Block(1, 16, 2), Block(16, 32, 2))
model = nn.Sequential(backbone, tc.CapsuleHead(32, n_classes=10, n_types=8))

# %% [markdown]
# The head returns scores, class capsules and couplings. Train the scores with cross-entropy:

# %%
facts = find("strokes")
transforms = [Normalize(facts.mean, facts.std)]


def train(model, steps, lr=3e-3):
    """Train on generated digits and return the accuracy on others."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    batches = Batches(load("strokes"), 64, transforms=transforms, seed=0).epoch(0)
    for _, batch in zip(range(steps), batches):
        loss = tc.cross_entropy_loss(model(batch.images).scores, batch.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    test = next(iter(Batches(load("strokes", "test"), 1000, transforms=transforms).epoch(0)))
    with torch.no_grad():
        right = model(test.images).scores.argmax(dim=1) == test.labels
    return 100 * right.float().mean().item()


print(f"{train(model, 150):.1f} % of 1,000 test digits")

# %% [markdown]
# The couplings say where each class gets its pose from. There is one for every position of the feature map, type of capsule and
# class. We add up the types and show the map of the predicted class below each digit. Bright positions give more. After so few
# steps the maps follow the strokes only loosely:

# %%
digits = next(iter(Batches(load("strokes", "test"), 5, transforms=transforms).epoch(0)))
with torch.no_grad():
    out = model(digits.images)
winners = out.scores.argmax(dim=1)
couplings = out.couplings[0].unflatten(1, (7, 7, 8))  # [b h w i n]
figure, axes = plt.subplots(2, 5, figsize=(8, 3.4))
for (above, below), image, winner, shares in zip(axes.T, digits.images, winners, couplings):
    above.imshow(image[0].numpy(), cmap="gray")
    above.set_title(f"read as {winner}")
    below.imshow(shares[..., winner].sum(dim=-1).numpy(), cmap="viridis")
    above.set_axis_off()
    below.set_axis_off()
plt.show()

# %% [markdown]
# ## On tokens
#
# A vision transformer without its classification layer returns tokens `[b n c]`. The head takes them as they are. A small
# transformer on 16 patches of 7x7 pixels:


# %%
class Tokens(nn.Module):
    """Cut images into patches and let them attend to each other."""

    def __init__(self, width=48):
        super().__init__()
        self.patches = nn.Conv2d(1, width, 7, 7)
        self.positions = nn.Parameter(0.02 * torch.randn(16, width))
        layer = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, images):
        return self.encoder(self.patches(images).flatten(2).transpose(1, 2) + self.positions)


vit = nn.Sequential(Tokens(), tc.CapsuleHead(48, n_classes=10, n_types=8))
print(list(vit[0](torch.rand(2, 1, 28, 28)).shape), "tokens")
print(f"{train(vit, 400, lr=2e-3):.1f} % of 1,000 test digits")

# %% [markdown]
# ## Another routing
#
# `routing=` takes a routing class. Each routing scores the classes as its paper does, and each score has its loss. Dynamic
# routing has lengths and the margin loss, EM routing has activations and the spread loss.

# %%
for routing in (tc.DynamicRouting, tc.EMRouting, tc.PairwiseRouting):
    head = tc.CapsuleHead(32, n_classes=10, n_types=8, routing=routing)
    scores = head(torch.rand(2, 32, 7, 7)).scores
    print(f"{routing.__name__}: scores {list(scores.shape)} by {routing.scores_by}")

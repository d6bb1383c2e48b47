# ---
# jupytext:
#   text_representation: {extension: .py, format_name: percent}
# kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Write your own routing
#
# A routing is a function from votes to parents. We write one in three steps: a plain function, a small class, and a check. The
# idea is simple: a child sends itself to the parents that its *neighbors* support, by comparing each vote with the mean vote.
#
# ## 1. The function
#
# Votes are `[b i j e]`. The function returns poses `[b j e]`, activations `[b j]` and couplings `[b i j]`.

# %%
import torch
from torch import Tensor

import torchcaps as tc


def mean_agreement(votes: Tensor, *, sharpness: float = 4.0) -> tc.Routed:
    """Couple each child to the parents whose mean vote is close to its own."""
    distance = (votes - votes.mean(dim=1, keepdim=True)).square().mean(dim=-1)  # [b i j]
    couplings = (-sharpness * distance).softmax(dim=-1)
    poses = tc.squash(torch.einsum("bij,bije->bje", couplings, votes))
    return tc.Routed(poses, tc.lengths(poses), couplings)


mean_agreement(torch.randn(2, 6, 3, 4)).couplings.sum(dim=-1)[0]

# %% [markdown]
# ## 2. The class
#
# The class owns what is learned, and says by attributes what the rest of the library needs to know. Here the couplings compete
# over parents, and nothing is learned. `self.cast(votes)` makes the dense tensor.

# %%
from typing import ClassVar


class MeanAgreementRouting(tc.Routing):
    """Routing by agreement with the mean vote."""

    competes_over: ClassVar = "parents"
    weight_std: ClassVar = 0.1  # initial size of a head's vote weights
    adds_coordinates: ClassVar = False  # votes are summed, so positions would saturate them

    def __init__(self, sizes: tc.Sizes, *, sharpness: float = 4.0) -> None:
        super().__init__(sizes)
        self.sharpness = sharpness

    def forward(self, children, votes, parents=None):
        self.refuse_parents(parents)  # it starts from the votes alone
        return mean_agreement(self.cast(votes), sharpness=self.sharpness)


# %% [markdown]
# ## 3. The check
#
# `check_routing` runs the contract: shapes, couplings that sum to one, gradients against finite differences, finite numbers at
# zero votes, the order of children, and more. It raises an `AssertionError` that names a broken promise.

# %%
from torchcaps.testing import check_routing

check_routing(MeanAgreementRouting)
print("the contract holds")

# %% [markdown]
# ## Use it
#
# Every layer and network that takes `routing=` takes yours.

# %%
from functools import partial

from torchcaps.data import Batches, load

torch.manual_seed(0)
backbone = torch.nn.Sequential(
    torch.nn.Conv2d(1, 32, 5, 2), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 5, 2), torch.nn.ReLU()
)
head = tc.CapsuleHead(
    32, n_classes=10, n_types=8, matrix=False, routing=partial(MeanAgreementRouting, sharpness=2.0)
)
model = torch.nn.Sequential(backbone, head)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step, batch in zip(range(200), Batches(load("strokes"), 64, seed=0).epoch(0)):
    loss = tc.margin_loss(model(batch.images).scores, batch.labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step + 1}: loss {loss.item():.3f}")

# %%
test = next(iter(Batches(load("strokes", "test"), 1000).epoch(0)))
with torch.no_grad():
    right = tc.predict(model(test.images).scores) == test.labels
print(f"{100 * right.float().mean():.1f} % of 1,000 test digits")

# %% [markdown]
# To train it with the command line, put the class, a network and a recipe into a file and name it: `torchcaps train
# ./my_recipe.py:recipe`. [The networks page](../networks.md) has such a file.

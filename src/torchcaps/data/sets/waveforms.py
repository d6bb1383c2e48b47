"""Waveforms: noisy one-dimensional signals of eight shapes, with known frequency and phase.

Nothing is stored or downloaded. A signal is an image of height 1.
"""

from math import pi, sqrt

import torch
from torch import Tensor

from torchcaps.checks import check_range, check_whole
from torchcaps.data.dataset import Batch
from torchcaps.data.description import Description
from torchcaps.data.files import DataFolder
from torchcaps.data.generated import Generated
from torchcaps.data.random import Draws, stream_key
from torchcaps.preprocessing.description import MAX_SIDE

COUNTS = {"train": 20_000, "validation": 2_000, "test": 10_000, "fit": 20_000}
CLASSES = (
    "sine",
    "triangle",
    "square",
    "sawtooth rising",
    "sawtooth falling",
    "chirp rising",
    "chirp falling",
    "beat",
)
LENGTH = 256
ZERO, UNIT = 128, 48
"""Byte of the value 0, and bytes per unit: a byte holds -2.7 to 2.6."""


class Waveforms(Generated):
    """Signals of eight shapes in random phase, frequency and amplitude, with noise.

    A signal has 3 to 9 periods, an amplitude of 0.5 to 1 and Gaussian noise. The frequency of a
    rising chirp goes from 0.5 to 1.5 times its mean; a beat is the sum of two sines. Values are
    stored as bytes: `ZERO` is 0 and `UNIT` bytes are 1. ``annotations`` of a batch: ``wave``
    ``[b 3]`` with the periods, the phase in radians and the amplitude.

    Args:
        count: samples in an epoch.
        length: values in a signal.
        split: ``"train"``, ``"validation"``, ``"test"`` or any other word; samples differ.
        seed: seed of the samples.
        noise: standard deviation of the noise.
        device: device on which samples are drawn.
    """

    name = "waveforms"

    def __init__(
        self,
        count: int = 20_000,
        *,
        length: int = LENGTH,
        split: str = "train",
        seed: int = 0,
        noise: float = 0.3,
        device: torch.device | str = "cpu",
    ) -> None:
        check_whole("count", count, least=1)
        check_whole("length", length, least=32, most=MAX_SIDE)
        check_whole("seed", seed)
        check_range("0 and noise", (0, noise))
        super().__init__(length, CLASSES, split, height=1)
        self.count = count
        self.seed = seed
        self.noise = noise
        self._time = torch.arange(length, device=device) / length

    def __len__(self) -> int:
        return self.count

    @property
    def device(self) -> torch.device:
        """Device on which samples are drawn."""
        return self._time.device

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """Return the samples of these indices."""
        stream = Draws(stream_key(self.seed, 0, f"waveforms {self.split}"), samples)
        labels = stream.integers(len(CLASSES))[0]
        wave = torch.cat(
            [stream.uniform(3.0, 9.0), stream.uniform(0.0, 2 * pi), stream.uniform(0.5, 1.0)]
        ).T.contiguous()
        uniform = stream.uniform(-1, 1, self.size).T.clamp(-0.999999, 0.999999)
        signals = wave[:, 2:] * self._shapes(labels, wave[:, :1], wave[:, 1:2])
        signals = signals + self.noise * sqrt(2) * uniform.erfinv()
        images = (ZERO + UNIT * signals).round().clamp(0, 255).byte()
        return Batch(images[:, None, None], labels, samples, annotations={"wave": wave})

    def _shapes(self, labels: Tensor, periods: Tensor, phase: Tensor) -> Tensor:
        """Return each signal without noise at amplitude 1, ``[b length]``."""
        time = self._time
        turns = periods * time + phase / (2 * pi)
        sine, sawtooth = (2 * pi * turns).sin(), 2 * (turns % 1) - 1
        bend = periods * time * (time - 1) / 2  # slope -1/2 to 1/2 of the periods
        shapes = (
            sine,
            2 * sawtooth.abs() - 1,
            sine.sign(),
            sawtooth,
            -sawtooth,
            (2 * pi * (turns + bend)).sin(),
            (2 * pi * (turns - bend)).sin(),
            (sine + (2 * pi * (turns + 2 * time)).sin()) / 2,
        )
        return torch.stack(shapes)[labels, torch.arange(len(labels), device=labels.device)]


def _read(description: Description, split: str, folder: DataFolder) -> Waveforms:
    return Waveforms(description.counts[split], split="train" if split == "fit" else split)


WAVEFORMS = Description(
    name="waveforms",
    about="noisy signals of eight shapes, 1-D",
    source="built in",
    counts=COUNTS,
    shape=(1, 1, LENGTH),
    mean=(0.5019,),
    std=(0.1138,),
    classes=CLASSES,
    read=_read,
)

"""Random numbers without state: each is a function of (seed, epoch, sample, draw) alone.

A generator's stream depends on the device and on what was drawn before. Here the numbers of a
sample come from integer hashing of its index, in integers that never overflow, so that CPU and CUDA
agree to the bit and neither batch size nor worker count nor order changes a sample.
"""

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9
_PIECE = 1 << 22
_FEW = 8


def stream_key(seed: int, epoch: int = 0, purpose: str = "") -> int:
    """A 64-bit key for one seed, epoch and purpose; different ones give unrelated streams."""
    key = 0x243F6A8885A308D3
    for value in (seed, epoch, *purpose.encode()):
        for word in (value & _WORD, (value >> 32) & _WORD):
            low, high = _mix_int(key ^ word), key >> 32
            key = (_mix_int(high + low) << 32) | _mix_int(low + _GOLDEN)
            key &= 0xFFFFFFFFFFFFFFFF
    return key


def _mix_int(value: int) -> int:
    value &= _WORD
    value = ((value ^ (value >> 15)) * 0x2C1B3C6D) & _WORD
    value = ((value ^ (value >> 12)) * 0x297A2D39) & _WORD
    return value ^ (value >> 15)


def _mix(words: Tensor) -> Tensor:
    """Scramble 32-bit words held in int64: a bijection, and no product reaches 2^63."""
    words = ((words ^ (words >> 15)) * 0x2C1B3C6D) & _WORD
    words = ((words ^ (words >> 12)) * 0x297A2D39) & _WORD
    return words ^ (words >> 15)


class Draws:
    """The random numbers of some samples.

    Args:
        key: from `stream_key`.
        samples: long ``[b]``, each sample's index in its data set, below 2^32.
    """

    def __init__(self, key: int, samples: Tensor) -> None:
        self.key = key
        self.samples = samples.long()
        self._base: Tensor | None = None
        self._used = 0

    def bits(self, count: int = 1) -> Tensor:
        """The next ``count`` numbers of each sample: long ``[count b]`` in 0..2^32-1."""
        if self._base is None:
            self._base = _mix((self.samples + (self.key & _WORD)) & _WORD)
        first, self._used = self._used, self._used + count
        if count <= _FEW:
            words = (self._word(draw) for draw in range(first, self._used))
            return _mix(torch.stack([self._base ^ word for word in words]))
        draws = torch.arange(first, self._used, device=self.samples.device)
        words_of_all = _mix((draws * _GOLDEN + (self.key >> 32)) & _WORD)
        return _mix(self._base ^ words_of_all[:, None])

    def _word(self, draw: int) -> int:
        """A few are mixed here: on a device every small operation costs a launch."""
        return _mix_int(draw * _GOLDEN + (self.key >> 32))

    def integers(self, bound: int | Tensor, count: int = 1) -> Tensor:
        """Long ``[count b]``, uniform in 0..bound-1; ``bound`` is below 2^31."""
        return (self.bits(count) * bound) >> 32

    def uniform(self, low: float = 0.0, high: float = 1.0, count: int = 1) -> Tensor:
        """Float ``[count b]``, uniform from ``low`` up to ``high``."""
        return (self.bits(count) >> 8).float() * ((high - low) / (1 << 24)) + low


def shuffled(count: int, key: int, device: torch.device | str = "cpu") -> Tensor:
    """A permutation of 0..count-1, the same on every device."""
    ranks = []
    # in pieces: sixty million samples would otherwise need many times their own memory
    for samples in torch.split(torch.arange(count, device=device), _PIECE):
        high, low = Draws(key, samples).bits(2)
        ranks.append((high << 30) | (low >> 2))
    return torch.sort(torch.cat(ranks), stable=True).indices

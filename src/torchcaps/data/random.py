"""Random numbers without state: each is a function of (seed, epoch, sample, draw) alone.

A `torch.Generator` stream depends on the device and on earlier draws. Here the numbers of a sample
come from hashing its index in integers that never overflow. CPU and CUDA therefore agree to the
bit, and batch size, worker count and order change no sample.
"""

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9
_CHUNK = 1 << 22
_MAX_HOST_DRAWS = 8


def stream_key(seed: int, epoch: int = 0, purpose: str = "") -> int:
    """Return the 64-bit key of one seed, epoch and purpose; other keys give unrelated streams."""
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
    """Scramble 32-bit words stored in int64: a bijection in which no product reaches 2^63."""
    words = ((words ^ (words >> 15)) * 0x2C1B3C6D) & _WORD
    words = ((words ^ (words >> 12)) * 0x297A2D39) & _WORD
    return words ^ (words >> 15)


class Draws:
    """Random numbers for a batch of samples.

    Args:
        key: key from `stream_key`.
        samples: long ``[b]``, index of each sample in its data set, below 2^32.
    """

    def __init__(self, key: int, samples: Tensor) -> None:
        self.key = key
        self.samples = samples.long()
        self._base: Tensor | None = None
        self._used = 0

    def bits(self, count: int = 1) -> Tensor:
        """Return the next ``count`` numbers of each sample: long ``[count b]`` in 0..2^32-1."""
        if self._base is None:
            self._base = _mix((self.samples + (self.key & _WORD)) & _WORD)
        first, self._used = self._used, self._used + count
        if count <= _MAX_HOST_DRAWS:
            words = (self._word(draw) for draw in range(first, self._used))
            return _mix(torch.stack([self._base ^ word for word in words]))
        draws = torch.arange(first, self._used, device=self.samples.device)
        all_words = _mix((draws * _GOLDEN + (self.key >> 32)) & _WORD)
        return _mix(self._base ^ all_words[:, None])

    def _word(self, draw: int) -> int:
        """Mix one draw's number on the host, because a small operation costs a launch on a GPU."""
        return _mix_int(draw * _GOLDEN + (self.key >> 32))

    def integers(self, bound: int | Tensor, count: int = 1) -> Tensor:
        """Return long ``[count b]``, uniform in 0..bound-1; ``bound`` is below 2^31."""
        return (self.bits(count) * bound) >> 32

    def uniform(self, low: float = 0.0, high: float = 1.0, count: int = 1) -> Tensor:
        """Return float ``[count b]``, uniform from ``low`` up to ``high``."""
        return (self.bits(count) >> 8).float() * ((high - low) / (1 << 24)) + low


def shuffled(count: int, key: int, device: torch.device | str = "cpu") -> Tensor:
    """Return a permutation of 0..count-1 that is the same on every device."""
    ranks = []
    # in chunks, because temporaries for 60 million samples would not fit into memory
    for samples in torch.split(torch.arange(count, device=device), _CHUNK):
        high, low = Draws(key, samples).bits(2)
        ranks.append((high << 30) | (low >> 2))
    return torch.sort(torch.cat(ranks), stable=True).indices

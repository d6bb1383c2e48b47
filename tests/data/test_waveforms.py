"""Waveforms: signals of height 1 whose frequency, phase and amplitude are known."""

from math import pi

import torch

from torchcaps.data import Batches, Waveforms, find, load

COUNT = 2000


def test_each_shape_is_what_its_name_says() -> None:
    batch = Waveforms(COUNT, noise=0).whole
    values = (batch.images[:, 0, 0].float() - 128) / 48
    periods, phase, amplitude = batch.annotations["wave"].T[:, :, None]
    time = torch.arange(256) / 256
    angle = 2 * pi * periods * time + phase
    by_name = {name: batch.labels == label for label, name in enumerate(find("waveforms").classes)}
    sine = by_name["sine"]
    assert torch.allclose(values[sine], (amplitude * angle.sin())[sine], atol=0.6 / 48)
    square = by_name["square"]
    levels = (values / amplitude)[square].abs()
    assert float(((levels - 1).abs() < 0.03).float().mean()) > 0.99
    steps = values.diff(dim=1)
    for name, rising in (("sawtooth rising", steps), ("sawtooth falling", -steps)):
        assert float((rising[by_name[name]] >= 0).float().mean(1).min()) > 0.95
    signs = values.sign()
    crossings = (signs[:, 1:] != signs[:, :-1]).float()
    later = crossings[:, 128:].sum(1) - crossings[:, :128].sum(1)
    assert float(later[by_name["chirp rising"]].mean()) > 2
    assert float(later[by_name["chirp falling"]].mean()) < -2
    assert abs(float(later[by_name["triangle"]].mean())) < 0.5


def test_noise_has_the_standard_deviation_that_was_asked_for() -> None:
    clean, noisy = Waveforms(COUNT, noise=0), Waveforms(COUNT, noise=0.2)
    difference = (noisy.images.float() - clean.images.float()) / 48
    assert abs(float(difference.std()) - 0.2) < 0.005
    assert abs(float(difference.mean())) < 0.005


def test_splits_differ_and_samples_do_not_depend_on_the_batch() -> None:
    train, test = load("waveforms"), load("waveforms", "test")
    assert train.images.shape == (20_000, 1, 1, 256)
    assert not torch.equal(train.images[:100], test.images[:100])
    some = Batches(train, 7).batch(torch.tensor([5, 3])).images
    assert torch.equal((some * 255).round().byte(), train.images[[5, 3]])
    facts = find("waveforms")
    pixels = train.images.float() / 255
    assert abs(float(pixels.mean()) - facts.mean[0]) < 1e-4
    assert abs(float(pixels.std()) - facts.std[0]) < 1e-4

"""Published sizes of networks, and small networks with inputs."""

import torch
from torch import Tensor, nn

import torchcaps as tc
from torchcaps.routing import RoutingFactory

# Learned parameters, and all numbers including the running statistics of batch normalization where
# a paper's framework counts those. The third column is the paper's own figure.
COUNTS = [
    ("demo/strokes-pose", 19_943, None, None),
    ("demo/waveforms", 157_152, None, None),
    ("sabour2017/mnist", 8_215_728, None, "8.2M"),
    ("sabour2017/mnist-plain", 6_804_384, None, "6.8M"),
    ("sabour2017/multimnist", 11_361_968, None, "11.36M"),
    ("sabour2017/affnist", 13_475_808, None, "13.40M in Zhao 2020"),
    ("sabour2017/cifar10", 22_476_448, None, None),
    ("sabour2017/mnist-baseline", 35_445_522, None, "35.4M"),
    ("sabour2017/multimnist-baseline", 24_563_978, None, "24.56M"),
    ("tsai2020/cifar10-simple", 561_297, None, "0.56M"),
    ("tsai2020/cifar100-simple", 1_462_989, None, "1.46M"),
    ("tsai2020/cifar10-resnet", 1_828_817, None, "1.83M"),
    ("tsai2020/cifar100-resnet", 2_799_629, None, "2.80M"),
    ("tsai2020/cifar10-simple-dynamic", 7_992_576, None, "7.99M"),
    ("tsai2020/cifar100-simple-dynamic", 31_585_536, None, "31.59M"),
    ("tsai2020/cifar10-resnet-dynamic", 12_451_136, None, "12.45M"),
    ("tsai2020/cifar100-resnet-dynamic", 36_044_096, None, "36.04M"),
    ("tsai2020/cifar10-simple-em", 452_788, None, "0.45M"),
    ("tsai2020/cifar100-simple-em", 499_048, None, "0.50M"),
    ("tsai2020/cifar10-resnet-em", 1_710_580, None, "1.71M"),
    ("tsai2020/cifar100-resnet-em", 1_756_840, None, "1.76M"),
    ("tsai2020/cifar10-baseline", 18_919_434, None, "18.92M"),
    ("tsai2020/cifar100-baseline", 19_011_684, None, "19.01M"),
    ("tsai2020/cifar10-resnet18", 11_173_962, None, "11.17M"),
    ("tsai2020/cifar100-resnet18", 11_220_132, None, "11.22M"),
    ("tsai2020/diversemultimnist-matrix", 9_982_401, None, None),
    ("tsai2020/diversemultimnist-vector", 42_496_449, None, None),
    ("tsai2020/diversemultimnist-baseline-learned", 42_490_762, None, "42.49M"),
    ("choi2019/mnist", 5_312_528, 5_312_784, "5.31M"),
    ("choi2019/affnist", 3_500_832, 3_501_088, None),
    ("choi2019/cifar10-0-16", 7_293_152, 7_293_408, "7.3M"),
    ("choi2019/cifar10-1-16", 3_519_840, 3_520_096, "3.5M"),
    ("choi2019/cifar10-2-16", 3_678_688, 3_678_944, "3.7M"),
    ("choi2019/cifar10-3-16", 3_837_536, 3_837_792, "3.8M"),
    ("choi2019/cifar10-4-16", 3_996_384, 3_996_640, "4.0M"),
    ("choi2019/cifar10-0-32", 12_637_312, 12_637_568, "12.6M"),
    ("choi2019/cifar10-1-32", 7_716_224, 7_716_480, "7.7M"),
    ("choi2019/cifar10-2-32", 8_332_928, 8_333_184, "8.4M in the paper, 8.3M by count"),
    ("choi2019/cifar10-3-32", 8_949_632, 8_949_888, "8.9M"),
    ("choi2019/cifar10-4-32", 9_566_336, 9_566_592, "9.6M"),
    ("choi2019/cifar10", 9_566_336, 9_566_592, "9.6M"),
    ("choi2019/mnist-dynamic", 8_215_568, None, "8.21M"),
    ("choi2019/cifar10-dynamic", 11_749_120, None, "11.74M"),
    ("zhao2020/cifar10-light", 1_002_816, None, None),
    # Zhao's code has 48 normalized channels less: see test_zhao2020.py
    ("zhao2020/cifar10", 903_760 + 96, 907_504 + 192, "less than 1M"),
    ("zhao2020/fashion-mnist", 903_472 + 96, 907_216 + 192, "less than 1M"),
    ("zhao2020/affnist", 195_376 + 96 + 186_145, 195_920 + 192 + 199_041, "196K + 199K"),
    ("zhao2020/multimnist", 455_633 + 96, 467_089 + 192, "457K in the paper, 565K in its code"),
    ("hinton2018/smallnorb", 317_194, None, "310K in the paper, rounded or by another count"),
    ("hinton2018/smallnorb-small", 68_754, None, "68K"),
    ("mazzia2021/mnist-plain", 161_824, None, "161,824"),
    ("mazzia2021/mnist", 161_824 + 1_411_344, None, "161,824 + decoder"),
    ("mazzia2021/multimnist", 154_656 + 1_936_144, None, None),
    ("mazzia2021/smallnorb", 151_664 + 229_570, None, "151K + decoder"),
    # convolution, primary capsules and their norms, votes, and two betas per parent
    ("ribeiro2020/smallnorb", 3_328 + 8_736 + 56_576 + 74, None, None),
    ("ribeiro2020/smallnorb-one-layer", 3_328 + 156_736 + 46_080 + 10, None, None),
    # the backbone, primary capsules with their norms, and the class layer
    ("hahn2019/resnet20-self", 269_072 + 314_432 + 348_160, None, "931,664"),
    ("hahn2019/resnet20-dynamic", 269_072 + 295_936 + 5_242_880, None, None),
    ("hahn2019/resnet20-em", 269_072 + 314_432 + 327_700, None, None),
    ("hahn2019/resnet20-average", 269_072 + 650, None, None),
    ("hahn2019/resnet20-connected", 269_072 + 296_448 + 327_690, None, None),
    ("yang2021/mnist-l2", 8_215_568 + 11_520, None, None),
    ("yang2021/mnist-l1-plain", 6_804_224 + 11_520, None, None),
]


def example(name: str, batch: int) -> tuple[tc.Network, Tensor, Tensor]:
    torch.manual_seed(0)
    network = tc.build(name)
    images = torch.rand(batch, *network.image_shape)
    targets = torch.arange(batch) % network.n_classes
    if getattr(network, "n_objects", 1) == 2:
        targets = torch.stack([targets, (targets + 1) % network.n_classes], dim=1)
    return network, images, targets


class SmallNetwork(nn.Module):
    """Primary, convolutional and class capsules, with any routing."""

    def __init__(self, routing: RoutingFactory, *, channels: int = 3, matrix: bool = True) -> None:
        super().__init__()
        self.primary = tc.PrimaryCapsules(channels, 3, 4, kernel_size=3, activations=True)
        self.conv = tc.ConvCapsules(
            3, 2, 4, 4, kernel_size=2, stride=2, routing=routing, matrix=matrix
        )
        self.linear = tc.LinearCapsules(2 * 2 * 2, 5, 4, 4, routing=routing, matrix=matrix)

    def forward(self, images: Tensor) -> tc.Routed:
        routed: tc.Routed = self.linear(self.conv(self.primary(images)))
        return routed

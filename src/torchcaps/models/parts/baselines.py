"""The convolutional networks without capsules that the papers compare with."""

from torch import nn

from torchcaps.models.network import Classifier, ImageShape
from torchcaps.models.parts.backbones import BasicBlock, ImageConv2d, conv3x3


def mnist_baseline(image_shape: ImageShape, n_classes: int) -> Classifier:
    """Build the baseline of Sabour 2017, section 5: three 5x5 convolutions, two hidden layers."""
    channels, height, width = image_shape
    layers = nn.Sequential(
        ImageConv2d(channels, 256, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(256, 256, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(256, 128, 5, padding=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128 * height * width, 328),
        nn.ReLU(),
        nn.Linear(328, 192),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(192, n_classes),
    )
    return Classifier(image_shape, n_classes, layers)


def multimnist_baseline(image_shape: ImageShape, n_classes: int) -> Classifier:
    """Build the baseline of Sabour 2017, section 6.2: two convolutions, one hidden layer."""
    channels, height, width = image_shape
    features = nn.Sequential(
        ImageConv2d(channels, 512, 9, padding=4),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Conv2d(512, 256, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Flatten(),
    )
    quarter = ((height + 3) // 4) * ((width + 3) // 4)
    head = nn.Sequential(nn.Linear(256 * quarter, 1024), nn.ReLU(), nn.Linear(1024, n_classes))
    return Classifier(image_shape, n_classes, nn.Sequential(features, head))


def affnist_baseline(image_shape: ImageShape, n_classes: int) -> Classifier:
    """Build the released CNN of Sabour 2017: two 5x5 convolutions with pools, a dropped layer."""
    channels, height, width = image_shape
    layers = nn.Sequential(
        ImageConv2d(channels, 512, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Conv2d(512, 256, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Flatten(),
        nn.Linear(256 * ((height + 3) // 4) * ((width + 3) // 4), 1024),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(1024, n_classes),
    )
    return Classifier(image_shape, n_classes, layers)


def baseline_cnn(image_shape: ImageShape, n_classes: int) -> Classifier:
    """Build the CNN of Tsai 2020, Tables 2 and 3: three convolutions of 1,024 channels."""
    layers = nn.Sequential(
        ImageConv2d(image_shape[0], 1024, 3, stride=2, padding=1),
        nn.ReLU(),
        *_conv_relu_norm(stride=2, padding=1),
        nn.AvgPool2d(2),
        *_conv_relu_norm(stride=2, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(1024, n_classes),
    )
    return Classifier(image_shape, n_classes, layers)


def multimnist_cnn(
    image_shape: ImageShape, n_classes: int, *, learned_pooling: bool = False
) -> Classifier:
    """Build the CNN of Tsai 2020, Table 12, with average pooling or one learned linear layer."""
    channels, height, width = image_shape
    features = nn.Sequential(
        ImageConv2d(channels, 1024, 3, stride=2, padding=1),
        nn.ReLU(),
        *_conv_relu_norm(stride=2, padding=0),
        *_conv_relu_norm(stride=1, padding=0),
    )
    positions = 1
    for n in (height, width):
        positions *= (((n - 1) // 2 + 1) - 3) // 2 + 1 - 2
    pooling: list[nn.Module]
    if learned_pooling:
        pooling = [nn.Flatten(), nn.Linear(1024 * positions, 640)]
    else:
        pooling = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 640)]
    return Classifier(
        image_shape, n_classes, nn.Sequential(features, *pooling, nn.Linear(640, n_classes))
    )


def _conv_relu_norm(*, stride: int, padding: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    return (nn.Conv2d(1024, 1024, 3, stride, padding), nn.ReLU(), nn.BatchNorm2d(1024))


def resnet18(image_shape: ImageShape, n_classes: int) -> Classifier:
    """Build ResNet-18 with a 3x3 stem and no pooling after it, as usual for CIFAR."""
    blocks: list[nn.Module] = []
    width = 64
    for channels in (64, 128, 256, 512):
        blocks += [
            BasicBlock(width, channels, stride=1 if channels == 64 else 2),
            BasicBlock(channels, channels),
        ]
        width = channels
    layers = nn.Sequential(
        conv3x3(image_shape[0], 64),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, n_classes),
    )
    return Classifier(image_shape, n_classes, layers)

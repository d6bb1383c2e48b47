"""The claims of each paper's abstract, and the measurements that judge them."""

from torchcaps.results.claims.verdicts import (
    Claim,
    above,
    faster,
    fixed_verdict,
    not_worse,
    reached,
)

INSIDE = "[looking inside](../looking-inside.md)"

CLAIMS: dict[str, tuple[Claim, ...]] = {
    "sabour2017": (
        Claim("state of the art on MNIST", reached("sabour2017/mnist")),
        Claim(
            '"considerably better than a convolutional net at recognizing highly overlapping '
            'digits"',
            above(("sabour2017/multimnist", "sabour2017/multimnist-baseline")),
        ),
        Claim(
            "routing by agreement sends a part to the right whole",
            fixed_verdict(
                "seen in part",
                "on overlapping digits the same weights reach 95.5 % with three iterations and "
                "95.0 % with one (10,000 pairs); on single digits they agree in 1,996 of 2,000 "
                f"images: {INSIDE}",
            ),
        ),
        Claim(
            "the orientation of a capsule represents instantiation parameters",
            fixed_verdict(
                "seen in part",
                f"moving one number of a capsule changes size, slant and thickness: {INSIDE}",
            ),
        ),
    ),
    "hinton2018": (
        Claim(
            "45 % fewer test errors on smallNORB than the state of the art",
            fixed_verdict("not measured", "no run on smallNORB"),
        ),
        Claim(
            "more robust to white-box attacks than a convolutional network",
            fixed_verdict("not measured", f"attacks were tried on CapsNet only: {INSIDE}"),
        ),
    ),
    "choi2019": (
        Claim(
            "higher accuracy than CapsuleNet with fewer parameters (0.65 on MNIST, 0.82 on "
            "CIFAR-10)",
            above(
                ("choi2019/mnist", "choi2019/mnist-dynamic"),
                ("choi2019/cifar10", "choi2019/cifar10-dynamic"),
                also="parameters: 5,312,528 of 8,215,568 and 9,566,336 of 11,749,120",
            ),
        ),
        Claim(
            "less training time than CapsuleNet (0.19 on MNIST, 0.35 on CIFAR-10)",
            faster(
                ("choi2019/mnist", "choi2019/mnist-dynamic"),
                ("choi2019/cifar10", "choi2019/cifar10-dynamic"),
                mode="train",
            ),
        ),
        Claim(
            "moving one entry of a capsule changes the whole drawing",
            fixed_verdict(
                "not measured", "`torchcaps figures choi2019/mnist --only perturbation` draws it"
            ),
        ),
        Claim(
            "changes of a capsule under affine maps lie along one direction",
            fixed_verdict(
                "seen",
                "alignment ratios of 0.89 to 0.91, of little weight: untrained networks reach 0.80 "
                "to 0.92 (below)",
            ),
        ),
    ),
    "tsai2020": (
        Claim(
            "better than earlier routings on CIFAR-10",
            above(
                ("tsai2020/cifar10-simple", "tsai2020/cifar10-simple-dynamic"),
                ("tsai2020/cifar10-simple", "tsai2020/cifar10-simple-em"),
                ("tsai2020/cifar10-resnet", "tsai2020/cifar10-resnet-dynamic"),
                ("tsai2020/cifar10-resnet", "tsai2020/cifar10-resnet-em"),
            ),
        ),
        Claim(
            "better than earlier routings on CIFAR-100",
            above(
                ("tsai2020/cifar100-simple", "tsai2020/cifar100-simple-dynamic"),
                ("tsai2020/cifar100-simple", "tsai2020/cifar100-simple-em"),
                ("tsai2020/cifar100-resnet", "tsai2020/cifar100-resnet-dynamic"),
                ("tsai2020/cifar100-resnet", "tsai2020/cifar100-resnet-em"),
            ),
        ),
        Claim(
            "on par with ResNet-18 with a quarter of the parameters",
            not_worse(
                ("tsai2020/cifar10-resnet", "tsai2020/cifar10-resnet18"),
                ("tsai2020/cifar100-resnet", "tsai2020/cifar100-resnet18"),
                also="parameters: 1,828,817 of 11,173,962 and 2,799,629 of 11,220,132",
            ),
        ),
        Claim(
            "favorable against CNNs on overlapping digits",
            above(
                ("tsai2020/diversemultimnist-matrix", "tsai2020/diversemultimnist-baseline"),
                ("tsai2020/diversemultimnist-vector", "tsai2020/diversemultimnist-baseline"),
            ),
        ),
    ),
    "zhao2020": (
        Claim(
            "much lower computational cost than dynamic routing",
            faster(
                ("zhao2020/cifar10-light", "zhao2020/cifar10-light-dynamic"),
                ("zhao2020/cifar10-light", "zhao2020/cifar10-light-dynamic-1"),
                ("zhao2020/fashion-mnist-light", "zhao2020/fashion-mnist-light-dynamic"),
                ("zhao2020/fashion-mnist-light", "zhao2020/fashion-mnist-light-dynamic-1"),
            ),
        ),
        Claim(
            "better accuracy than dynamic and EM routing",
            above(
                ("zhao2020/cifar10-light", "zhao2020/cifar10-light-dynamic"),
                ("zhao2020/fashion-mnist-light", "zhao2020/fashion-mnist-light-dynamic"),
                ("zhao2020/affnist-style", "zhao2020/affnist-style-dynamic"),
                ("zhao2020/affnist-style", "zhao2020/affnist-style-em"),
            ),
        ),
        Claim(
            "residual networks and capsules combine well",
            reached("zhao2020/cifar10", "zhao2020/fashion-mnist"),
        ),
    ),
    "yang2021": (
        Claim(
            "better convergence than dynamic routing",
            above(
                ("yang2021/fashion-mnist-l1", "yang2021/fashion-mnist-dynamic"),
                ("yang2021/cifar10-l1", "yang2021/cifar10-dynamic"),
            ),
        ),
        Claim(
            "faster convergence than dynamic routing",
            fixed_verdict("not measured", "Figure 3 needs runs that watch their test accuracy"),
        ),
        Claim(
            "competitive accuracy on MNIST",
            not_worse(
                ("yang2021/mnist-l1", "yang2021/mnist-dynamic"),
                ("yang2021/mnist-l2", "yang2021/mnist-dynamic"),
            ),
        ),
        Claim(
            "competitive accuracy on Fashion-MNIST",
            not_worse(
                ("yang2021/fashion-mnist-l1", "yang2021/fashion-mnist-dynamic"),
                ("yang2021/fashion-mnist-l2", "yang2021/fashion-mnist-dynamic"),
            ),
        ),
        Claim(
            "competitive accuracy on CIFAR-10",
            not_worse(
                ("yang2021/cifar10-l1", "yang2021/cifar10-dynamic"),
                ("yang2021/cifar10-l2", "yang2021/cifar10-dynamic"),
            ),
        ),
    ),
    "mazzia2021": (
        Claim(
            "160K parameters",
            fixed_verdict(
                "seen",
                "161,824 for MNIST and 151,664 for smallNORB without the decoder, by count",
            ),
        ),
        Claim(
            "state of the art on three data sets with 2 % of CapsNet's parameters",
            fixed_verdict(
                "not measured",
                "no run as published yet; modern training reaches 99.63 ± 0.03 % on MNIST (n = 3)",
            ),
        ),
    ),
    "hahn2019": (
        Claim(
            "more robust than agreement against white-box attacks and affine transformations",
            fixed_verdict(
                "not measured",
                "no run of its networks yet; in [our study](../understand/which-routing.md) "
                "dynamic routing is the more robust one: 29.1 against 18.2 % under attacks on "
                "Fashion-MNIST, 98.1 against 93.4 % on digits under affine maps (n = 3)",
            ),
        ),
        Claim(
            "less computation than agreement",
            fixed_verdict(
                "not measured",
                "no run yet; by count the head has 662,592 parameters and dynamic routing's "
                "5,538,816",
            ),
        ),
    ),
    "ribeiro2020": (
        Claim(
            "98.7 % on smallNORB with three capsule layers (README)",
            fixed_verdict("not measured", "no run yet"),
        ),
        Claim(
            "97.1 % on smallNORB with one capsule layer (README)",
            fixed_verdict("not measured", "no run yet"),
        ),
        Claim(
            "half as many capsules as before (abstract)",
            fixed_verdict("seen", "types 8, 16, 16 against 32, 32, 32 of Hinton 2018, by count"),
        ),
    ),
}
"""Paper -> claims, in the order of the abstract."""

"""Plans: lists of settings that are measured together, by name."""

from dataclasses import replace

from torchcaps.bench.setting import HEAD, Setting
from torchcaps.errors import UsageError, suggest

TSAI, TSAI100 = "tsai2020/cifar10-resnet", "tsai2020/cifar100-resnet"
SABOUR, HINTON = "sabour2017/mnist", "hinton2018/smallnorb"
ZHAO, CHOI, YANG = "zhao2020/cifar10", "choi2019/cifar10", "yang2021/mnist-l2"
VECTOR = "tsai2020/diversemultimnist-vector"
SMALL = (SABOUR, "hinton2018/smallnorb-small", "tsai2020/cifar10-simple", ZHAO, YANG)
MODES = ("inference", "train")
BEST, PLAIN, FLOOR = "fused+compile+graph", "torch+compile+graph", "floor+compile+graph"

LOOPS = ("fused", "fused+compile", "fused+reduce", "fused+graph", BEST)
"""Ways of a user's own loop: eager, compiled by default, with graphs of its own, and captured."""


def _low(case: str, way: str, batch: int, iterations: int | None = None) -> Setting:
    return Setting(case, way, batch, dtype="bfloat16", iterations=iterations)


def _user(setting: Setting) -> Setting:
    return replace(setting, loop="user")


def _image(setting: Setting) -> Setting:
    return replace(setting, competition="image")


PLANS: dict[str, tuple[Setting, ...]] = {
    "cpu": tuple(
        Setting(case, way, batch)
        for case, batch in ((TSAI, 16), (SABOUR, 16))
        for way in ("floor", "dense", "torch")
    ),
    "tsai": (
        _low(TSAI, FLOOR, 512),
        *(_low(TSAI, BEST, 512, n) for n in (2, 3)),
        *(_low(TSAI, way, 512) for way in ("fused", "fused+graph")),
        *(_low(TSAI, way, 128) for way in (FLOOR, BEST, PLAIN)),
        *(_low(TSAI100, way, 512) for way in (FLOOR, BEST)),
    ),
    "sabour": (
        *(_low(SABOUR, way, 512) for way in (FLOOR, BEST, "fused+graph")),
        *(_low(SABOUR, way, 2048) for way in (FLOOR, BEST, PLAIN, "fused+graph")),
    ),
    "em": (
        *(_low(HINTON, way, 64, 2) for way in (BEST, PLAIN, "fused+graph")),
        *(_image(_low(HINTON, way, 64, 2)) for way in (BEST, "fused+graph")),
        Setting(HINTON, "fused+graph", 64, iterations=2),
    ),
    "pairwise": tuple(
        _low(ZHAO, way, batch) for batch in (128, 512) for way in (FLOOR, BEST, PLAIN)
    ),
    "quick": (
        *(_low(TSAI, way, 512) for way in ("floor+graph", "fused+graph")),
        _low(TSAI, "fused+graph", 128),
        _low(TSAI100, "fused+graph", 512),
        *(_low(SABOUR, way, 2048) for way in ("floor+graph", "fused+graph")),
        _low(HINTON, "fused+graph", 64, 2),
        Setting(HINTON, "fused+graph", 64, iterations=2),
    ),
    "iterations": tuple(
        _low(case, "fused+graph", batch, n)
        for case, batch in ((TSAI, 512), (SABOUR, 2048), (HINTON, 64))
        for n in range(1, 6)
    ),
    "batch": tuple(
        _low(case, "fused+graph", batch)
        for case in (TSAI, SABOUR)
        for batch in (8, 32, 128, 512, 2048)
    ),
    "eager": (
        *(_user(_low(case, way, 128)) for case in (SABOUR, TSAI) for way in ("floor", *LOOPS)),
        *(_low(case, way, 128) for case in (SABOUR, TSAI) for way in ("fused", BEST)),
        *(_user(Setting(case, "fused", 128)) for case in (SABOUR, TSAI)),
        *(_low(CHOI, way, 128) for way in ("torch", "torch+compile", "torch+compile+graph")),
    ),
    "latency": tuple(
        replace(_low(case, way, batch), mode="inference")
        for case in (SABOUR, TSAI)
        for batch in (1, 256)
        for way in LOOPS
    ),
    "head": tuple(
        replace(_low(HEAD, "fused", 256), classes=classes, pose=pose, side=side)
        for classes, pose, side in (
            (10, 16, 7),
            (100, 16, 7),
            (1000, 16, 7),
            (100, 4, 7),
            (100, 64, 7),
            (100, 16, 14),
        )
    ),
    "parents": (
        *(
            replace(_low(HEAD, way, 256), classes=1000, pose=16, side=7)
            for way in ("fused", "torch")
        ),
        *(_low(VECTOR, way, 128) for way in (FLOOR, BEST, PLAIN, "fused")),
        *(_low(f"{VECTOR}-dynamic", way, 128) for way in (BEST, PLAIN)),
    ),
    "sides": tuple(replace(_low(TSAI, "fused+graph", 128), side=side) for side in (32, 48, 64)),
    "routings": tuple(
        replace(_low(case, "torch", 128), mode=mode)
        for case in (TSAI, SABOUR, HINTON, ZHAO, CHOI, YANG)
        for mode in MODES
    ),
    "forward": tuple(
        replace(_low(case, way, batch), mode="inference")
        for case, batch in ((TSAI, 512), (SABOUR, 2048), (HINTON, 64), (ZHAO, 512))
        for way in (FLOOR, BEST, PLAIN)
        if (case, way) != (HINTON, FLOOR)
    ),
    "small": (
        *(Setting(case, "floor", 4) for case in (SABOUR, ZHAO)),
        *(Setting(case, "torch", 4, mode=mode) for case in SMALL for mode in MODES),
    ),
}


def plan(name: str) -> tuple[Setting, ...]:
    """Return the settings of a plan."""
    if name not in PLANS:
        raise UsageError(f"there is no plan {name!r}: {suggest(name, PLANS)}")
    return PLANS[name]

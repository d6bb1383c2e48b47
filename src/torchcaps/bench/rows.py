"""Measurements as rows of results/speed.csv."""

import importlib.util
import math
import platform
from collections.abc import Sequence
from importlib.metadata import version

import torch

from torchcaps import provenance
from torchcaps.bench.measure import network
from torchcaps.bench.setting import Measured
from torchcaps.results import SpeedRow


def rows_of(measured: Sequence[Measured], *, device: torch.device, revision: str) -> list[SpeedRow]:
    """Return one row per measurement.

    The floor of a row has the same case, mode, batch size, precision and sizes.
    """
    floors = {_key(m): m.images_per_s for m in measured if m.setting.has("floor")}
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else _processor()
    triton = version("triton") if importlib.util.find_spec("triton") else None
    rows = []
    for one in measured:
        setting, floor = one.setting, floors.get(_key(one))
        rows.append(
            SpeedRow(
                case=setting.case,
                mode=setting.mode,
                implementation=setting.implementation,
                batch=setting.batch,
                dtype=setting.dtype,
                iterations=None if setting.has("floor") else _iterations(one),
                classes=setting.classes,
                side=setting.side,
                pose=setting.pose,
                competition="image" if setting.competition == "image" else None,
                loop="user" if setting.loop == "user" else None,
                images_per_s=_rounded(one.images_per_s),
                slow_images_per_s=_rounded(setting.batch / one.quantile(0.9)),
                fast_images_per_s=_rounded(setting.batch / one.quantile(0.1)),
                peak_mib=None if math.isnan(one.peak_mib) else round(one.peak_mib),
                share_of_floor=round(one.images_per_s / floor, 3) if floor else None,
                ready_s=round(one.ready_s, 1),
                gpu=gpu,
                torch=torch.__version__,
                triton=triton,
                commit=revision,
                date=provenance.date()[:10],
            )
        )
    return rows


def _rounded(speed: float) -> float:
    """Round to four significant digits."""
    return float(f"{speed:.4g}")


def _key(measured: Measured) -> tuple[object, ...]:
    one = measured.setting
    return one.case, one.mode, one.batch, one.dtype, one.classes, one.side, one.pose


def _iterations(measured: Measured) -> int | None:
    if measured.setting.iterations is not None:
        return measured.setting.iterations
    with torch.device("meta"):
        net = network(measured.setting)
    counts = [getattr(net, "iterations", None)]
    counts += [getattr(module, "iterations", None) for module in net.modules()]
    known = [count for count in counts if count is not None]
    return known[0] if known else None


def _processor() -> str:
    return f"{platform.machine()} CPU x{torch.get_num_threads()}"

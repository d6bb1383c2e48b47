"""Run folders and benchmark rows that look like finished ones."""

import json
from pathlib import Path
from typing import Any

import torch

import torchcaps as tc
from helpers.runs.rows import row as result_row
from torchcaps.recipes import get

SPEED = """\
case,mode,implementation,batch,dtype,iterations,images_per_s,peak_mib,share_of_floor,gpu,torch,\
triton,commit,date
sabour2017/mnist,inference,torch,128,float32,1,12800,100,0.1,H200,2.11,3.6,abc,2026-11-15
sabour2017/mnist,inference,torch,128,float32,3,6400,140,0.1,H200,2.11,3.6,abc,2026-11-15
sabour2017/mnist,inference,torch,128,float32,2,9600,120,0.1,H200,2.11,3.6,abc,2026-11-15
sabour2017/mnist,inference,fused,128,float32,3,25600,80,0.4,H200,2.11,3.6,abc,2026-11-15
sabour2017/mnist,train,torch,128,float32,3,3200,400,0.1,H200,2.11,3.6,abc,2026-11-15
zhao2020/affnist,inference,torch,64,bfloat16,,6400,,0.1,H200,2.11,3.6,abc,2026-11-15
zhao2020/affnist,train,torch,64,bfloat16,,,,,H200,2.11,3.6,abc,2026-11-15
"""


def routing_of(epoch: int) -> dict[str, Any]:
    """Return the routing of one layer that decides more in every epoch."""
    layer = {"layer": "classes", "entropy": 2.0 / epoch, "uniform_entropy": 2.0, "mean": 0.5}
    layer |= {"std": 0.1, "low": 0.3, "high": 0.7, "dead": 0.1 * epoch, "saturated": 0.2 / epoch}
    return {"images": 16, "changed": 10.0 * epoch, "layers": [layer]}


def write_run(folder: Path, *, recipe: str = "demo/strokes-dynamic", epochs: int = 3) -> Path:
    """A run folder with an untrained network in it."""
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    tc.save(tc.build(get(recipe).network), folder / "weights.safetensors")
    described = {"recipe": recipe, "seed": 0, "settings": {}, "data": None}
    (folder / "run.json").write_text(json.dumps(described))
    (folder / "result.json").write_text(json.dumps(result_row(recipe, test=97.25).to_dict()))
    with (folder / "metrics.jsonl").open("w") as file:
        for epoch in range(1, epochs + 1):
            row = {"kind": "epoch", "epoch": epoch, "step": epoch, "loss": 1 / epoch}
            row["train"] = 90.0 + epoch
            row["validation"] = None if epoch == 1 else 91.0 + epoch
            row["routing"] = routing_of(epoch)
            file.write(json.dumps(row) + "\n")
    return folder

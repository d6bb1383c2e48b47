"""The rows of the scorecard and the scripts that try them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

Trials = Callable[[int, int], Iterator[str]]
"""Trials ``first`` to ``first + count``: each gives "" or says what went wrong."""


@dataclass(frozen=True)
class Row:
    """A claim, how often it is tried, and where in `trials` they are: ``module:function``."""

    claim: str
    pr: int
    release: int
    where: str

    def trials(self) -> Trials:
        module, _, function = self.where.partition(":")
        found: Trials = getattr(import_module(f"reliability.trials.{module}"), function)
        return found


ROWS = {
    "kill-save": Row(
        "`kill -9` at any moment of a save: no checkpoint lost, no wrong value, at most one "
        "save's progress gone",
        200,
        2_000,
        "kills:trials",
    ),
    "damage": Row(
        "flipped bits, truncation, zeroing, wrong model in a checkpoint: all found, the one "
        "before is used, the damaged one is left alone",
        200,
        1_000,
        "damage:trials",
    ),
    "disk-full": Row(
        "disk full in checkpoint, log, figure, download, result, weights: the old one is good, "
        "the message names path, needed and free bytes",
        12,
        80,
        "disks:trials",
    ),
    "tensors": Row(
        "wrong tensors per routing (empty, one capsule, not contiguous, wrong type, device and "
        "shape, NaN, 1e30): a result or a clear message",
        324,
        324,
        "tensors:trials",
    ),
    "downloads": Row(
        "network cut, wrong hash, 404, a web page in place of the file, stalled server, 8 askers "
        "at once",
        20,
        100,
        "downloads:trials",
    ),
    "mutations": Row(
        "mutated files, for every reader and loader as many: a valid result or one of our errors; "
        "no crash, no hang, no huge allocation",
        200_000,
        10_000_000,
        "suites:mutations",
    ),
    "networks": Row(
        "mutated files of saved networks: read whole or refused in a sentence",
        300,
        10_000,
        "suites:networks",
    ),
    "hostile": Row(
        "hostile archives, pickles and checkpoints: nothing executed, nothing written outside",
        198,
        198,
        "suites:hostile",
    ),
    "kill-command": Row(
        "`kill -9` of the command as a user starts it: no checkpoint lost, and when it is let go "
        "to its end the same bits as the unbroken run",
        2,
        100,
        "runs:commands",
    ),
    "kill-resume": Row(
        "kill and resume, one to three times a run: weights, optimizer and metrics bit-equal to "
        "the unbroken run (CPU), 20 runs for each of six routings",
        3,
        120,
        "runs:resumes",
    ),
    "signals": Row(
        "Ctrl-C and SIGTERM: saves and exits within 30 s with 130 or 143",
        3,
        60,
        "runs:signals",
    ),
    "same-seed": Row(
        "same seed, same bits over 100 steps, every routing (CPU); another seed, other bits",
        6,
        12,
        "runs:seeds",
    ),
    "same-seed-gpu": Row(
        "the same on a GPU with `--deterministic`",
        0,
        12,
        "runs:gpu_seeds",
    ),
    "not-finite": Row(
        "NaN or Inf in input, logits, loss, gradient: stops before the optimizer step, names step "
        "and place, keeps the last good checkpoint, and goes on bit-equal once the cause is gone",
        18,
        72,
        "poison:trials",
    ),
    "rank-dies": Row(
        "one of two processes under torchrun is killed: the other ends within 60 s, torchrun "
        "starts them again, the run goes on and ends with the same bits",
        1,
        20,
        "ranks:trials",
    ),
    "options": Row(
        "command-line and recipe values: unknown keys refused with the nearest name, wrong types "
        "and ranges refused, exit code 2, right ones taken",
        500,
        5_000,
        "options:trials",
    ),
    "disk-full-run": Row(
        "the disk of the command fills up while it trains: exit code 1 and a sentence with path, "
        "needed and free bytes; with room again it ends with the same bits as the unbroken run",
        1,
        20,
        "disks:runs",
    ),
    "explorer": Row(
        "explorer's local server: oversized, cut-off, wrong and random bodies, foreign `Host` and "
        "`Origin`, path traversal, 50 clients at once: no crash, no hang, no traceback to the "
        "client; Ctrl-C ends it within 5 s",
        200,
        10_000,
        "explorer:trials",
    ),
    "exports": Row(
        "exported files of every shipped network: scores within 1e-4 of PyTorch's on other images "
        "than the export's, whole metadata; a failed export leaves no file and keeps the one of "
        "before",
        2,
        60,
        "exports:trials",
    ),
    "recipe-files": Row(
        "a user's recipe file: only a file the user names is executed; a broken one gets one "
        "sentence and the line; results, checkpoints and weight files never name code",
        14,
        70,
        "recipe_files:trials",
    ),
    "weights": Row(
        "pretrained weights: the right preprocessing travels with the file and 500 test images "
        "give the recorded accuracy within 4 standard deviations; files of every released version "
        "load and give their scores",
        3,
        17,
        "weights:trials",
    ),
}

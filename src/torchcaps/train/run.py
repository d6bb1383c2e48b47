"""One run in one process: epochs, checkpoints, choice of the epoch, the final score."""

import copy
import gc
import math
import signal
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from torch import Tensor

from torchcaps.data import Batches
from torchcaps.errors import TorchcapsError, UsageError
from torchcaps.models import Network, save
from torchcaps.recipes import Recipe
from torchcaps.recipes.schedules import Clock
from torchcaps.train.averaging import settle_statistics, update_average
from torchcaps.train.building import hasten_statistics, make_network, spread
from torchcaps.train.checkpoint.files import (
    CheckpointError,
    checkpoints,
    load_checkpoint,
    newest_checkpoint,
    sweep,
)
from torchcaps.train.checkpoint.saver import Saver
from torchcaps.train.checkpoint.state import Progress, capture, restore, restore_weights, shared
from torchcaps.train.compiling import compiled
from torchcaps.train.diagnose import culprit
from torchcaps.train.evaluation.score import score
from torchcaps.train.facts import peak_mib, result_row
from torchcaps.train.images import Sources
from torchcaps.train.optimizers import lr_factor, set_lr
from torchcaps.train.outputs.board import Board
from torchcaps.train.outputs.folder import RunFolder
from torchcaps.train.outputs.report import Now, Rate, Reporter
from torchcaps.train.process import Process
from torchcaps.train.signals import InterruptedRunError, Stop
from torchcaps.train.step import GraphedStep, NonFiniteError, make_step

__all__ = ["Run", "TrainingError"]


class TrainingError(TorchcapsError, RuntimeError):
    """A run cannot go on: what happened, where, and what is left, in one sentence."""


class Run:
    """One training run in one process."""

    def __init__(
        self,
        recipe: Recipe,
        seed: int,
        folder: RunFolder,
        process: Process,
        sources: Sources,
        reporter: Reporter,
        stop: Stop,
    ) -> None:
        self.recipe = recipe
        self.seed = seed
        self.folder = folder
        self.process = process
        self.sources = sources
        self.reporter = reporter if process.leads else Reporter()
        self.stop = stop
        self.progress = Progress()
        self.rate = Rate()
        self.saver: Saver | None = None
        self.watch_test = False
        size = min(recipe.batch_size, len(sources.train))
        if size % process.world:
            raise UsageError(
                f"a batch of {size} cannot be shared by {process.world} processes: "
                f"set batch_size to a multiple of {process.world}"
            )
        self.batch_size = size
        self.batches = Batches(
            sources.train,
            size // process.world,
            transforms=sources.train_transforms,
            seed=seed,
            drop_last=True,
            shard=(process.rank, process.world),
        )
        # the same on every process, though the last shard may be a sample short
        self.steps_per_epoch = len(sources.train) // size
        self.steps = recipe.epochs * self.steps_per_epoch

    def build(self, *, sync_batch_norm: bool) -> None:
        """The network, its optimizers and the step that trains it."""
        recipe, device = self.recipe, self.process.device
        network = make_network(recipe, self.seed, self.sources, device)
        hasten_statistics(network, self.steps)
        self.network = network
        forward: Callable[..., Any] = network
        if self.process.world > 1:
            forward = spread(
                network, recipe, self.seed, self.process, sync_batch_norm=sync_batch_norm
            )
        if recipe.compile:
            forward = compiled(forward)
        self.take = make_step(recipe, network, self.process, forward)
        self.step = self.take.step if isinstance(self.take, GraphedStep) else self.take
        self.averaged: Network | None = None
        self.average: dict[str, Tensor] = {}
        if recipe.average:
            self.averaged = copy.deepcopy(network).requires_grad_(False).eval()
            self.average = dict(self.averaged.named_parameters())

    def resume(self, *, tensorboard: bool, save_every: float, keep: int) -> None:
        """Go on from the newest good checkpoint, if there is one."""
        saved = None
        if self.process.leads:
            sweep(self.folder.checkpoints)
            self.saver = Saver(self.folder.checkpoints, keep=keep)
            saved = newest_checkpoint(
                self.folder.checkpoints,
                warn=lambda text: self.reporter.say(f"warning: {text}"),
                model=self.network.state_dict(),
            )
        saved = shared(saved, self.process)
        if saved is not None:
            self.progress = restore(self.step, self.average, saved, self.process)
            self.rate.go_on(self.progress.images, self.progress.training_seconds)
            self.reporter.say(f"resumed at step {self.progress.step} of {self.steps}")
        ended = self.progress.step - self.progress.unscored
        if self.process.leads:
            self.folder.forget_after(ended)
        self.board = Board(
            self.folder.path / "tensorboard",
            on=tensorboard and self.process.leads,
            step=ended,
        )
        if tensorboard and self.process.leads and self.board.writer is None:
            self.reporter.say("tensorboard is not installed: no events are written")
        self.save_every = save_every
        self.last_save = self.last_look = time.monotonic()
        self.started = time.monotonic() - self.progress.seconds

    def epochs(self) -> None:
        """Train what is left."""
        if self.progress.unscored:
            self._end_of_epoch(self.progress.step // self.steps_per_epoch - 1)
        while self.progress.step < self.steps:
            epoch, done = divmod(self.progress.step, self.steps_per_epoch)
            if not done:
                self.step.meters.zero_()
            self.network.train()
            self.rate.go()
            for batch in self.batches.epoch(epoch, skip=done):
                clock = Clock(self.progress.step, self.steps, self.steps_per_epoch)
                factor = lr_factor(self.recipe, clock)
                set_lr(self.step.optimizer, self.recipe.lr * factor)
                if self.step.ascent is not None:
                    set_lr(self.step.ascent, self.recipe.coefficient_lr * factor)
                try:
                    self.take(batch)
                except NonFiniteError:
                    raise self._not_finite() from None
                except RuntimeError:
                    if self.stop.signal:  # another process stopped first; the last step is whole
                        self._interrupt()
                    raise
                if self.average:
                    update_average(self.average, self.network, self.recipe.average, clock.step)
                self.progress.step += 1
                self.rate.count(self.batch_size, self.process.device)
                done += 1
                # the end of an epoch has a save of its own, after the score it must not lose
                if done == self.steps_per_epoch:
                    break
                self._between(epoch)
            self._check()  # waits for the device
            self.rate.rest()
            self._end_of_epoch(epoch)

    def _between(self, epoch: int) -> None:
        """What may happen after any step: a look, a checkpoint, the end."""
        if self.stop.signal:
            self._interrupt()
        moment = time.monotonic()
        if moment - self.last_look >= self.reporter.every:
            self._check()
            self.reporter.now(self._now(epoch))
            self.last_look = time.monotonic()
        if moment - self.last_save >= self.save_every:
            self._check()
            self._save()

    def _now(self, epoch: int) -> Now:
        loss, hits, count = self.step.meters.tolist()
        left, rate = (self.steps - self.progress.step) * self.batch_size, self.rate.per_second
        return Now(
            epoch=epoch + 1,
            epochs=self.recipe.epochs,
            step=self.progress.step,
            steps=self.steps,
            loss=loss / max(1, count),
            accuracy=100 * hits / max(1, count),
            images_per_s=rate,
            peak_mib=peak_mib(self.process.device),
            seconds_left=math.inf if left and not rate else left / max(rate, 1e-9),
        )

    def _check(self) -> None:
        try:
            self.step.check()
        except NonFiniteError:
            raise self._not_finite() from None

    def _not_finite(self) -> TrainingError:
        """What to tell about a step that was not finite."""
        bad = int(self.step.bad_step)
        epoch, place = divmod(bad, self.steps_per_epoch)
        cause = culprit(self.recipe, self.network, next(self.batches.epoch(epoch, skip=place)))
        if self.saver is not None:
            self.saver.wait()
        good = checkpoints(self.folder.checkpoints)
        kept = f"the last good checkpoint is {good[-1]}" if good else "no checkpoint was saved"
        return TrainingError(
            f"the loss stopped being finite at step {bad + 1} (epoch {epoch + 1}): {cause}; "
            f"nothing was updated by that step and {kept}; a lower lr or clip=1 may help"
        )

    def _end_of_epoch(self, epoch: int) -> None:
        totals = self.process.sum(self.step.meters).tolist()
        self.progress.unscored = True
        watched = self._glance(self.sources.test) if self.watch_test else None
        held_out = self._glance(self.sources.validation)
        self.progress.choose(held_out, epoch + 1)
        self.progress.unscored = False
        self.progress.seconds = time.monotonic() - self.started
        clock = Clock(self.progress.step - 1, self.steps, self.steps_per_epoch)
        row = {
            "kind": "epoch",
            "epoch": epoch + 1,
            "step": self.progress.step,
            "loss": totals[0] / max(1, totals[2]),
            "train": 100 * totals[1] / max(1, totals[2]),
            "validation": held_out,
            "test": watched,
            "lr": self.recipe.lr * lr_factor(self.recipe, clock),
            "seconds": round(self.progress.seconds, 3),
            "images_per_s": round(self.rate.per_second, 1),
            "peak_mib": peak_mib(self.process.device),
        }
        if self.process.leads:
            self.folder.log(row)
            self.board.epoch(row)
            self.reporter.now(self._now(epoch))
            self.reporter.epoch(row)
            # short epochs do not wait for the disk, unless there is something new to keep
            worth = self.progress.step in (self.steps, self.progress.best_step)
            if worth or self.saver is None or not self.saver.busy:
                self._save()
        if self.process.any(bool(self.stop.signal)):
            self._interrupt()

    def _evaluated(self) -> Network:
        """The network whose scores count: averaged weights, with the leader's statistics."""
        self.process.align(self.network.buffers())
        if self.averaged is None:
            return self.network.eval()
        for ours, theirs in zip(self.averaged.buffers(), self.network.buffers(), strict=True):
            ours.copy_(theirs)
        # always the same images, so that an epoch's score can be had again
        settle_statistics(self.averaged, self.batches.epoch(0), self.recipe, self.process.device)
        self.process.align(self.averaged.buffers())
        return self.averaged

    def _glance(self, source: Any) -> float | None:
        """Percent of a set's images right, if there is one, in the precision of training."""
        precision = self.recipe.precision
        return None if source is None else self._score(self._evaluated(), source, precision)

    def _score(self, network: Network, source: Any, precision: str, draws: int = 1) -> float:
        found = score(
            network,
            source,
            measure=self.recipe.measure,
            n_classes=self.sources.n_classes,
            process=self.process,
            transforms=self.sources.test_transforms,
            precision=precision,
            draws=draws,
            stopping=lambda: bool(self.stop.signal),
        )
        if found.images < draws * len(source):
            if self.progress.unscored:
                self._interrupt()
            self._leave()
        return found.percent

    def _save(self) -> None:
        self.last_save = time.monotonic()
        if self.saver is None:
            return
        self.progress.images = self.rate.images
        self.progress.training_seconds = self.rate.elapsed
        self.progress.seconds = time.monotonic() - self.started
        state = {"recipe": self.recipe.name, "seed": self.seed, **asdict(self.progress)}
        self.saver.save(
            self.progress.step,
            model=self.network.state_dict(),
            optim=capture(self.step, self.average, self.process.device),
            state=state,
            best=self.progress.best_step,
        )

    def _interrupt(self) -> NoReturn:
        """Save and leave."""
        self._check()
        self.rate.rest()
        self._save()
        if self.saver is not None:
            self.saver.wait()
        self._leave()

    def _leave(self) -> NoReturn:
        """Leave a run that is saved, with the exit code the signal calls for."""
        raise InterruptedRunError(
            f"stopped at step {self.progress.step} of {self.steps}, saved in {self.folder.path}; "
            "the same command goes on from here, unless it has --fresh",
            128 + (self.stop.signal or signal.SIGTERM),  # none where another process was asked
        )

    def finish(self, own: Path | None, command: str) -> dict[str, Any]:
        """Take the chosen epoch's weights, score the test set once, in float32, write the row."""
        if self.saver is not None:
            self.saver.wait()
        network, lost = self._chosen()
        held_out, test = self.progress.best, None
        if lost:
            held_out = self._glance(self.sources.validation)
        if self.sources.test is not None:
            test = self._score(network, self.sources.test, "float32", self.sources.test_draws)
        row: dict[str, Any] = {}
        if self.process.leads:
            save(network, self.folder.weights, classes=self.sources.classes)
            self.board.images(network, self.sources, self.progress.step)
            row = result_row(
                self.recipe,
                network,
                self.process,
                seed=self.seed,
                own=own,
                test=test,
                validation=held_out,
                seconds=round(self.progress.seconds, 1),
                images_per_s=round(self.rate.per_second, 1),
                weights=self.folder.weights,
            )
            if lost:
                row["modified"] = f"{row['modified']} chosen=last-epoch".strip()
            row["command"] = command
            self.folder.write("result.json", row)
        return row

    def heed(self) -> None:
        """Leave a finished run, if that was asked for: what would follow it is not begun."""
        if self.process.any(bool(self.stop.signal)):
            self._leave()

    def _chosen(self) -> tuple[Network, bool]:
        """The network at the best validation epoch, or at the last; whether the best is lost."""
        step, lost = self.progress.best_step, False
        if step is not None and step != self.progress.step:
            saved = None
            if self.process.leads:
                try:
                    path = self.folder.checkpoints / f"step-{step:08d}"
                    saved = load_checkpoint(path, model=self.network.state_dict())
                except CheckpointError as error:
                    self.reporter.say(
                        f"warning: the last epoch is scored and not the best, number "
                        f"{self.progress.best_epoch}: {error}"
                    )
            saved = shared(saved, self.process)
            lost = saved is None
            if saved is not None:
                restore_weights(self.network, self.average, saved)
        return self._evaluated().eval(), lost

    def close(self) -> None:
        """Finish writing."""
        self.board.close()
        self.reporter.close()
        if self.saver is not None:
            self.saver.close()
        if self.process.world > 1:
            # held by torch's reducer alone, the process group would end under the interpreter's
            # lock, and wait for a thread that waits for that lock
            del self.step, self.take
            gc.collect()

"""A training run in one process: its epochs, checkpoints, log and interruptions."""

import gc
import math
import signal
import time
from dataclasses import asdict
from typing import NoReturn

from torch import Tensor

from torchcaps.data import Batch, Batches, Source
from torchcaps.errors import TorchcapsError, UsageError
from torchcaps.models import Network
from torchcaps.provenance import peak_mib
from torchcaps.recipes import Recipe
from torchcaps.recipes.schedules import Clock
from torchcaps.results import CurvePoint, RoutingPoint
from torchcaps.train.building import make_forward, make_network, raise_norm_momentum
from torchcaps.train.checkpoint.files import checkpoints, newest_checkpoint, sweep
from torchcaps.train.checkpoint.saver import Saver
from torchcaps.train.checkpoint.state import Progress, capture, restore, share_checkpoint
from torchcaps.train.diagnose import find_cause
from torchcaps.train.evaluation.diagnostics import diagnose_routing, diagnostic_images
from torchcaps.train.evaluation.evaluator import Evaluator
from torchcaps.train.evaluation.score import score_of
from torchcaps.train.images import Sources
from torchcaps.train.optimizers import lr_factor, set_lr
from torchcaps.train.options import TrainOptions
from torchcaps.train.outputs.board import Board
from torchcaps.train.outputs.folder import RunFolder
from torchcaps.train.outputs.report import Now, Reporter
from torchcaps.train.outputs.throughput import Throughput
from torchcaps.train.process import Process
from torchcaps.train.signals import InterruptedRunError, Stop
from torchcaps.train.step import GraphedStep, NonFiniteError, make_step


class TrainingError(TorchcapsError, RuntimeError):
    """A run cannot continue; the message names the cause, the place and the last checkpoint."""


class Run:
    """A training run in one process, ready to train from its newest checkpoint.

    Args:
        recipe: the recipe to train.
        options: the options of the run.
        folder: the run folder, open in the leading process.
        process: this process.
        sources: the images on the process's device.
        stop: tells whether the run was asked to stop.
        start: the trained network that the run starts from, or None.
    """

    def __init__(
        self,
        recipe: Recipe,
        options: TrainOptions,
        folder: RunFolder,
        process: Process,
        sources: Sources,
        stop: Stop,
        start: Network | None = None,
    ) -> None:
        self.recipe = recipe
        self.options = options
        self.folder = folder
        self.process = process
        self.sources = sources
        self.stop = stop
        self.reporter = (options.reporter if process.leads else None) or Reporter()
        self.reporter.unit = "% R²" if recipe.measure == "r2" else "%"
        self.throughput = Throughput()
        self.batch_size = _batch_size(recipe, sources, process)
        self.batches = Batches(
            sources.train,
            self.batch_size // process.world,
            transforms=sources.train_transforms,
            seed=options.seed,
            drop_last=True,
            shard=(process.rank, process.world),
        )
        # the same in every process, though the last shard may be a sample short
        self.steps_per_epoch = len(sources.train) // self.batch_size
        self.steps = recipe.epochs * self.steps_per_epoch
        self.network = make_network(recipe, options.seed, sources, process.device, start)
        raise_norm_momentum(self.network, self.steps)
        forward = make_forward(
            self.network,
            recipe,
            options.seed,
            process,
            sync_batch_norm=options.sync_batch_norm,
        )
        self.take_step = make_step(recipe, self.network, process, forward, steps=self.steps)
        step = self.take_step
        self.step = step.step if isinstance(step, GraphedStep) else step
        self.evaluator = Evaluator(recipe, self.network, self.batches, sources, process, stop)
        self.diagnostic_images = diagnostic_images(sources) if process.leads else None
        self.saver = Saver(folder.checkpoints, keep=options.keep) if process.leads else None
        self.progress = self._load_progress()
        self.board = self._open_logs()
        self.last_save = self.last_look = time.monotonic()
        self.started = time.monotonic() - self.progress.seconds

    def _load_progress(self) -> Progress:
        """Restore the newest good checkpoint, if there is one."""
        saved = None
        if self.process.leads:
            sweep(self.folder.checkpoints)
            saved = newest_checkpoint(
                self.folder.checkpoints,
                warn=lambda text: self.reporter.say(f"warning: {text}"),
                model=self.network.state_dict(),
            )
        saved = share_checkpoint(saved, self.process)
        if saved is None:
            return Progress()
        progress = restore(self.step, self.evaluator.average, saved, self.process)
        self.throughput.resume(progress.images, progress.training_seconds)
        self.reporter.say(f"resumed at step {progress.step} of {self.steps}")
        return progress

    def _open_logs(self) -> Board:
        """Remove logged epochs that will be trained again, and open TensorBoard."""
        leads = self.process.leads
        last_scored = self.progress.step - self.progress.unscored
        if leads:
            self.folder.forget_after(last_scored)
        log_events = self.options.tensorboard and leads
        board = Board(self.folder.path / "tensorboard", on=log_events, step=last_scored)
        if log_events and board.writer is None:
            self.reporter.say("tensorboard is not installed: no events are written")
        return board

    def train(self) -> None:
        """Train the epochs that are left."""
        if self.progress.unscored:
            self._end_epoch(self.progress.step // self.steps_per_epoch - 1)
        while self.progress.step < self.steps and not self._is_accurate():
            epoch, done = divmod(self.progress.step, self.steps_per_epoch)
            self._train_epoch(epoch, done)
            self._end_epoch(epoch)

    def _is_accurate(self) -> bool:
        """Return whether the accuracy is reached at which the recipe stops."""
        best = self.progress.best
        return 0 < self.recipe.stop_at <= (-1.0 if best is None else best)

    def _train_epoch(self, epoch: int, done: int) -> None:
        """Take the steps of an epoch after those that are done."""
        if not done:
            self.step.meters.zero_()
        self.network.train()
        self.throughput.start()
        for batch in self.batches.epoch(epoch, skip=done):
            self._take_step(batch)
            done += 1
            # the end of an epoch saves on its own, after the score that must not be lost
            if done == self.steps_per_epoch:
                break
            self.after_step(epoch)
        self._check_finite()  # waits for the device
        self.throughput.pause()

    def _take_step(self, batch: Batch) -> None:
        """Train on one batch."""
        clock = Clock(self.progress.step, self.steps, self.steps_per_epoch)
        factor = lr_factor(self.recipe, clock)
        set_lr(self.step.optimizer, self.recipe.lr * factor)
        if self.step.ascent is not None:
            set_lr(self.step.ascent, self.recipe.coefficient_lr * factor)
        try:
            self.take_step(batch)
        except NonFiniteError:
            raise self._not_finite() from None
        except RuntimeError:
            if self.stop.signal:  # another process stopped first; the last step is complete
                self.save_and_leave()
            raise
        self.evaluator.update_average(clock.step)
        self.progress.step += 1
        self.throughput.count(self.batch_size, self.process.device)

    def after_step(self, epoch: int) -> None:
        """Stop, report or save between two steps of an epoch, whatever is due."""
        if self.stop.signal:
            self.save_and_leave()
        now = time.monotonic()
        if now - self.last_look >= self.reporter.every:
            self._check_finite()
            self.reporter.now(self._now(epoch))
            self.last_look = time.monotonic()
        if now - self.last_save >= self.options.save_every:
            self._check_finite()
            self._save()

    def _now(self, epoch: int) -> Now:
        loss, accuracy = self._read_meters(self.step.meters)
        images_left = (self.steps - self.progress.step) * self.batch_size
        rate = self.throughput.per_second
        return Now(
            epoch=epoch + 1,
            epochs=self.recipe.epochs,
            step=self.progress.step,
            steps=self.steps,
            loss=loss,
            accuracy=accuracy,
            images_per_s=rate,
            peak_mib=peak_mib(self.process.device),
            seconds_left=math.inf if images_left and not rate else images_left / max(rate, 1e-9),
        )

    def _read_meters(self, meters: Tensor) -> tuple[float, float]:
        """Return the mean loss and the score in percent."""
        loss, *sums, count = meters.tolist()
        return loss / max(1, count), score_of(sums, count, self.recipe.measure).percent

    def _check_finite(self) -> None:
        try:
            self.step.check()
        except NonFiniteError:
            raise self._not_finite() from None

    def _not_finite(self) -> TrainingError:
        """Return the error of a step that was not finite."""
        bad = self.step.bad_step
        epoch, index = divmod(bad, self.steps_per_epoch)
        cause = find_cause(self.recipe, self.network, next(self.batches.epoch(epoch, skip=index)))
        if self.saver is not None:
            self.saver.wait()
        good = checkpoints(self.folder.checkpoints)
        saved = f"the last good checkpoint is {good[-1]}" if good else "no checkpoint was saved"
        return TrainingError(
            f"the loss stopped being finite at step {bad + 1} (epoch {epoch + 1}): {cause}; "
            f"nothing was updated by that step and {saved}; a lower lr or clip=1 may help"
        )

    def _end_epoch(self, epoch: int) -> None:
        """Score, log and save an epoch whose steps are taken."""
        loss, accuracy = self._read_meters(self.process.sum(self.step.meters))
        self.progress.unscored = True
        test = self.validate(self.sources.test) if self.options.watch_test else None
        validation = self.validate(self.sources.validation)
        self.progress.choose(validation, epoch + 1)
        self.progress.unscored = False
        self.progress.seconds = time.monotonic() - self.started
        clock = Clock(self.progress.step - 1, self.steps, self.steps_per_epoch)
        point = CurvePoint(
            epoch=epoch + 1,
            step=self.progress.step,
            loss=loss,
            train=accuracy,
            validation=validation,
            test=test,
            lr=self.recipe.lr * lr_factor(self.recipe, clock),
            seconds=round(self.progress.seconds, 3),
            images_per_s=round(self.throughput.per_second, 1),
            peak_mib=peak_mib(self.process.device),
        )
        if self.process.leads:
            routing = self._diagnose(epoch)
            self.folder.log(point, routing)
            self.board.epoch(point, routing)
            self.reporter.now(self._now(epoch))
            self.reporter.epoch(point)
            # short epochs do not wait for the disk, except for the best and the last one
            must_save = self.progress.step in (self.steps, self.progress.best_step)
            if must_save or self.saver is None or not self.saver.busy:
                self._save()
        if self.process.any(bool(self.stop.signal)):
            self.save_and_leave()

    def _diagnose(self, epoch: int) -> RoutingPoint | None:
        """Measure what routing does in the trained weights."""
        assert self.diagnostic_images is not None
        images, measure = self.diagnostic_images, self.recipe.measure
        return diagnose_routing(self.network, images, epoch=epoch + 1, measure=measure)

    def validate(self, source: Source | None) -> float | None:
        """Return the accuracy in percent in the precision of training; None without images."""
        if source is None:
            return None
        return self.accuracy(self.evaluator.network(), source, self.recipe.precision)

    def accuracy(self, network: Network, source: Source, precision: str, draws: int = 1) -> float:
        """Return the accuracy in percent; leave the run if it is asked to stop meanwhile."""
        score = self.evaluator.score(network, source, precision, draws)
        if score.images < draws * len(source):
            if self.progress.unscored:
                self.save_and_leave()
            self._leave()
        return score.percent

    def _save(self) -> None:
        """Save a checkpoint in the leading process."""
        self.last_save = time.monotonic()
        if self.saver is None:
            return
        self.progress.images = self.throughput.images
        self.progress.training_seconds = self.throughput.seconds
        self.progress.seconds = time.monotonic() - self.started
        state = {"recipe": self.recipe.name, "seed": self.options.seed, **asdict(self.progress)}
        self.saver.save(
            self.progress.step,
            model=self.network.state_dict(),
            optim=capture(self.step, self.evaluator.average, self.process.device),
            state=state,
            best=self.progress.best_step,
        )

    def save_and_leave(self) -> NoReturn:
        """Save a checkpoint and leave the run."""
        self._check_finite()
        self.throughput.pause()
        self._save()
        if self.saver is not None:
            self.saver.wait()
        self._leave()

    def leave_if_stopped(self) -> None:
        """Leave a finished run if any process was asked to stop, before another run begins."""
        if self.process.any(bool(self.stop.signal)):
            self._leave()

    def _leave(self) -> NoReturn:
        """Leave a run that is saved, with the exit code of the signal."""
        raise InterruptedRunError(
            f"stopped at step {self.progress.step} of {self.steps}, saved in {self.folder.path}; "
            "the same command goes on from here, unless it has --fresh",
            128 + (self.stop.signal or signal.SIGTERM),  # none if another process was signaled
        )

    def close(self) -> None:
        """Finish writing, and release what holds the process group."""
        self.board.close()
        self.reporter.close()
        if self.saver is not None:
            self.saver.close()
        if self.process.world > 1:
            # If only torch's reducer held it, the process group would end under the interpreter's
            # lock and wait for a thread that waits for that lock.
            del self.step, self.take_step
            gc.collect()


def _batch_size(recipe: Recipe, sources: Sources, process: Process) -> int:
    """Return the images of one step over all processes."""
    size = min(recipe.batch_size, len(sources.train))
    if size % process.world:
        raise UsageError(
            f"a batch of {size} cannot be shared by {process.world} processes: "
            f"set batch_size to a multiple of {process.world}"
        )
    return size

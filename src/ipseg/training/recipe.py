"""A recipe: all settings of a run, as one YAML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from ipseg.config import Settings, build, scoped, scopes
from ipseg.data.dataset import DataConfig, DatasetSplits, hold_out
from ipseg.data.memory import MemoryConfig
from ipseg.data.registry import data_config
from ipseg.errors import UserError, require_above, require_at_least, require_between
from ipseg.methods.base import MethodConfig
from ipseg.methods.registry import method_config
from ipseg.models.network import ModelConfig
from ipseg.scenario import ScenarioConfig
from ipseg.training.evaluate import EvaluationConfig
from ipseg.training.recipe_files import find_recipe, read_recipe, with_overrides
from ipseg.training.track import require_tracker

WARMUP_START = 0.001
"""The warm-up's first multiple of the rate (SSUL's and the authors' code)."""

MAX_BATCH = 1 << 16
"""No machine holds more images at once: a number as large is a slip, and would take all memory before it fails."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Optimization. The defaults are the paper's for VOC."""

    epochs: float = 50
    """Epochs of the base step: epochs * images / batch_size iterations."""

    later_epochs: float | None = scoped(None, "later")
    """Epochs of later steps; null: as many. Replayed images take their share of a batch."""

    batch_size: int = 16
    """Images per iteration, over all processes."""

    crop: tuple[int, int] = (512, 512)
    """Height and width of a training crop."""

    scale: tuple[float, float] = (0.5, 2.0)
    """Range of the random scale before the crop."""

    flip: bool = True
    """Mirror half of the images at random."""

    lr: float = 0.01
    """Base learning rate; methods scale it per parameter group."""

    later_lr: float | None = scoped(None, "later")
    """Base learning rate of later steps; null: the same."""

    optimizer: Literal["sgd", "adamw"] = "sgd"
    """sgd: with momentum (the paper's), Nesterov's as in the authors' code. adamw: a pretrained backbone adapts in
    fewer iterations."""

    later_optimizer: Literal["sgd", "adamw"] | None = scoped(None, "later")
    """Optimizer of later steps; null: the same."""

    momentum: float = 0.9
    """Momentum of sgd."""

    weight_decay: float = 1e-4
    """Weight decay of all trainable parameters."""

    schedule: Literal["poly", "warm_poly"] = "poly"
    """poly: the rate falls as (1 - progress)^power. warm_poly: with a linear warm-up (the paper's for ADE20K)."""

    later_schedule: Literal["poly", "warm_poly"] | None = scoped(None, "later")
    """Schedule of later steps, where a high rate can make new heads diverge at once; null: the same."""

    power: float = 0.9
    """Exponent of the poly schedule."""

    warmup: float = 0.1
    """Share of the iterations used for the warm-up."""

    precision: Literal["float32", "bf16"] = "float32"
    """bf16: mixed precision by autocast."""

    fused: bool = True
    """Use fused optimizer kernels."""

    graphs: bool = False
    """On a GPU: train by CUDA graphs; small networks gain most. Not together with `deterministic`."""

    compile: bool = False
    """Use torch.compile. Compilation takes minutes in the base step and in the next."""

    cache_gb: float = scoped(8.0, "runtime")
    """Gigabytes of decoded images in memory, at most half of the machine's, shared by its processes; others are read
    each time. Does not change results."""

    workers: int = scoped(2, "runtime")
    """Threads that load the next batches; 0: load in the main thread. Does not change results."""

    checkpoint_seconds: float = scoped(60, "runtime")
    """Seconds between checkpoints: a kill loses at most this and the time to write one."""

    log_every: int = scoped(20, "runtime")
    """Iterations between log lines."""

    tensorboard: bool = scoped(False, "runtime")
    """Also write TensorBoard events (needs the extra `track`)."""

    def __post_init__(self) -> None:
        require_above("training.epochs", self.epochs, 0)
        require_above("training.later_epochs", 1.0 if self.later_epochs is None else self.later_epochs, 0)
        require_between("training.batch_size", self.batch_size, 1, MAX_BATCH)
        require_at_least("training.log_every", self.log_every, 1)
        for name in ("lr", "momentum", "weight_decay", "power", "cache_gb", "workers", "checkpoint_seconds"):
            require_at_least(f"training.{name}", getattr(self, name), 0)
        require_at_least("training.later_lr", self.later_lr or 0.0, 0)
        require_at_least("training.crop", min(self.crop), 16)
        require_between("training.warmup", self.warmup, 0, 0.9)
        if not 0 < self.scale[0] <= self.scale[1]:
            raise UserError(f"training.scale is {list(self.scale)}; it must be two rising numbers above 0.")

    def depends_on(self) -> dict[str, tuple[bool, str]]:
        """For settings that do not always act: whether they do, and what they need."""
        return {
            "momentum": ("sgd" in (self.optimizer, self.later_optimizer), "training.optimizer: sgd"),
            "warmup": ("warm_poly" in (self.schedule, self.later_schedule), "training.schedule: warm_poly"),
        }

    def at(self, step: int) -> TrainingConfig:
        """The settings of a step: `later_*` replace the base step's."""
        later = {name: getattr(self, f"later_{name}") for name in ("epochs", "lr", "optimizer", "schedule")}
        return replace(self, **{name: value for name, value in later.items() if step > 0 and value is not None})

    def iterations(self, step: int, images: int) -> int:
        """Iterations of a step with that many images."""
        return max(1, round(self.at(step).epochs * images / self.batch_size))

    def rate(self, iteration: int, iterations: int) -> float:
        """Learning-rate multiplier at an iteration; the warm-up multiplies the poly schedule."""
        poly = float((1 - iteration / iterations) ** self.power)
        warm = round(self.warmup * iterations) if self.schedule == "warm_poly" else 0
        done = min(1.0, iteration / max(1, warm))
        return poly if iteration >= warm else poly * (done + WARMUP_START * (1 - done))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole run."""

    name: str = scoped("", "runtime")
    """Name of the run in tables."""

    data: DataConfig
    """Dataset."""

    scenario: ScenarioConfig
    """Split of the classes into steps."""

    model: ModelConfig = field(default_factory=ModelConfig)
    """Network."""

    method: MethodConfig
    """Method."""

    memory: MemoryConfig = field(default_factory=MemoryConfig)
    """Replay memory."""

    training: TrainingConfig = field(default_factory=TrainingConfig)
    """Optimization."""

    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """Evaluation."""

    seed: int = 0
    """Seed of weights, order, crops and memory."""

    device: str = scoped("auto", "runtime")
    """auto (a GPU if there is one), cpu, cuda, cuda:1, mps."""

    deterministic: bool = False
    """On a GPU: use deterministic operations only. CPU runs are always deterministic."""

    init: str | None = scoped(None, "runtime")
    """RUN@K: take steps 0 to K from another run whose settings agree with this one's there."""

    def __post_init__(self) -> None:
        require_at_least("seed", self.seed, 0)

    def splits(self) -> DatasetSplits:
        """The images, split as the recipe says."""
        splits, share = self.data.build(), self.evaluation.held_out
        return hold_out(splits, share) if share else splits

    def oracle(self) -> list[str]:
        """Settings that see labels a step must not see; stamped into results."""
        of_data = getattr(self.data, "oracle", list)
        return [*self.method.oracle(), *of_data()]

    def unused_settings(self) -> list[str]:
        """A sentence for each setting that is not its default and has no effect, with what it would need."""
        replays = (self.memory.size == 0 or self.method.replays, "a method that replays")
        sections: list[tuple[str, Any, Mapping[str, tuple[bool, str]]]] = [
            ("method", self.method, self.method.depends_on()),
            ("training", self.training, self.training.depends_on()),
            ("memory", self.memory, {"size": replays, "store": replays}),
        ]
        return [
            f"{section}.{field.name} is {getattr(config, field.name)} and changes nothing: it needs {needed[1]}."
            for section, config, depends_on in sections
            for field in fields(config)
            if (needed := depends_on.get(field.name)) and not needed[0] and getattr(config, field.name) != field.default
        ]

    def inference_settings(self) -> list[str]:
        """The settings that may change after training: they act in predictions alone, or say where data lie."""
        return [key for key, scope in scopes(self).items() if scope in ("inference", "place") or key == "device"]

    def require_trainable(self) -> None:
        """Raise where a run cannot be trained, though a finished one can be evaluated so."""
        if self.training.graphs and self.deterministic:
            raise UserError(
                "training.graphs does not go together with deterministic: a captured iteration cannot be checked for "
                "nondeterministic operations. Set one of them to false."
            )
        if self.training.tensorboard:
            require_tracker()
        self.method.require_data(self.data)


SECTIONS = {"data": data_config, "method": method_config}


RUNTIME = frozenset(key for key, scope in scopes(Recipe).items() if scope == "runtime")
"""Settings that do not change a run's numbers, in any recipe."""


def make_recipe(values: Mapping[str, Any]) -> Recipe:
    """A recipe of plain values, every key checked."""
    made: Settings = dict(values)
    for section, make in SECTIONS.items():
        given = made.get(section) or {}
        if not isinstance(given, Mapping):
            raise UserError(f"{section} must be a section of settings, got {given!r}.")
        made[section] = make(given)
    return build(Recipe, made, "")


def load_recipe(name: str | Path, assignments: Sequence[str] = ()) -> Recipe:
    """A recipe by its file, or by the name of one that comes with the package; assignments are `key=value`."""
    return make_recipe(with_overrides(read_recipe(find_recipe(name), of_a_run=Path(name).is_dir()), assignments))

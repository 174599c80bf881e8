"""Which run starts when, with processes that only pretend."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipseg.sweep.launchers import AGAIN
from ipseg.sweep.schedule import Job, Scheduler

STEPS = 3


class Pretended:
    """A machine on which a test says what becomes of runs."""

    def __init__(self, out: Path, places: int = 9, *, holds_back: bool = False) -> None:
        self.out, self.places, self.holds_back = out, places, holds_back
        self.started: list[tuple[str, str | None]] = []
        self.shared: list[str] = []
        self.ends: dict[str, int | str | None] = {}
        self.canceled: list[tuple[str, bool]] = []

    def start(self, name, source, *, ready, shared):
        if not (ready or self.holds_back) or sum(end is None for end in self.ends.values()) >= self.places:
            return None
        self.started.append((name, source))
        self.shared += [name] if shared else []
        self.ends[name] = None
        if ready:
            self.at(name, 0)
        return PretendedProcess(self, name)

    def at(self, name: str, finished: int, end: int | str | None = None) -> None:
        """The run has begun, and finished at least that many steps; with a code it has ended."""
        for step in range(finished):
            (self.out / name / f"step_{step:02d}").mkdir(parents=True, exist_ok=True)
            (self.out / name / f"step_{step:02d}" / "step.json").touch()
        (self.out / name).mkdir(exist_ok=True)
        (self.out / name / "run.json").touch()
        self.ends[name] = end


class PretendedProcess:
    def __init__(self, machine: Pretended, name: str) -> None:
        self.machine, self.name = machine, name

    def poll(self):
        return self.machine.ends[self.name]

    def cancel(self, *, kill: bool) -> None:
        self.machine.canceled.append((self.name, kill))
        self.machine.ends[self.name] = 130


@pytest.fixture
def machine(tmp_path) -> Pretended:
    return Pretended(tmp_path)


def scheduler(machine: Pretended, **bases: str) -> tuple[Scheduler, dict[str, Job]]:
    jobs = {name: Job(name, base, STEPS, machine.out / name, Path("no.log")) for name, base in bases.items()}
    return Scheduler(list(jobs.values()), machine), jobs


def states(jobs: dict[str, Job]) -> list[str]:
    return [job.state for job in jobs.values()]


def test_a_base_step_is_trained_once_and_the_others_start_as_soon_as_it_is_there(machine):
    plan, jobs = scheduler(machine, a="x", b="x", c="x", d="y")
    plan.turn()
    assert machine.started == [("a", None), ("d", None)]
    assert machine.shared == ["a"]
    assert jobs["b"].reason == "for a"
    machine.at("a", 1)
    plan.turn()
    assert machine.started[2:] == [("b", "a"), ("c", "a")]
    for name in "abcd":
        machine.at(name, STEPS, 0)
    assert not plan.turn()
    assert states(jobs) == ["finished"] * 4


def test_a_launcher_that_holds_jobs_back_gets_them_before_their_base_step_is_trained(machine):
    machine.holds_back = True
    plan, jobs = scheduler(machine, a="x", b="x", c="y")
    plan.turn()
    assert machine.started == [("a", None), ("b", "a"), ("c", None)]
    assert machine.shared == ["a"]
    machine.ends |= {"a": 1, "b": "its base step failed"}
    plan.turn()
    assert [(job.state, job.reason) for job in jobs.values()][:2] == [
        ("failed", "exit code 1"),
        ("failed", "its base step failed"),
    ]


def test_no_more_run_at_a_time_than_there_is_room_for(machine):
    machine.places = 2
    plan, jobs = scheduler(machine, a="1", b="2", c="3")
    plan.turn()
    assert states(jobs) == ["running", "running", "waiting"]
    machine.at("b", STEPS, 0)
    plan.turn()
    assert states(jobs) == ["running", "finished", "running"]


def test_a_failed_run_stops_no_other_and_the_next_trains_the_base_step(machine):
    plan, jobs = scheduler(machine, a="x", b="x", c="x")
    plan.turn()
    machine.at("a", 0, 2)
    plan.turn()
    assert states(jobs) == ["failed", "running", "waiting"]
    assert machine.started == [("a", None), ("b", None)]
    assert jobs["a"].reason == "exit code 2"
    machine.at("b", 1, -9)
    plan.turn()
    assert (jobs["b"].state, jobs["b"].reason) == ("failed", "ended by signal 9")
    assert machine.started[-1] == ("c", "b")  # its base step is whole, whatever came after


def test_finished_runs_are_not_started_and_give_their_base_step(machine):
    machine.at("a", STEPS)
    plan, jobs = scheduler(machine, a="x", b="x")
    plan.turn()
    assert machine.started == [("b", "a")]
    assert states(jobs) == ["finished", "running"]


def test_interrupted_runs_resume_first_and_keep_their_own_beginning(machine):
    machine.places = 1
    machine.at("a", 2, 130)
    machine.at("c", 0, 130)
    plan, _ = scheduler(machine, b="x", a="x", c="z")
    plan.turn()
    assert machine.started == [("a", None)]


def test_a_run_that_ends_well_without_all_its_steps_has_failed(machine):
    plan, jobs = scheduler(machine, a="x")
    plan.turn()
    machine.at("a", 1, 0)
    assert not plan.turn()
    assert states(jobs) == ["failed"]


def test_a_run_of_another_sweep_is_waited_for_and_then_resumed(machine):
    plan, jobs = scheduler(machine, a="x")
    plan.turn()
    machine.at("a", 1, AGAIN)
    plan.turn()
    assert machine.started == [("a", None), ("a", None)]
    machine.at("a", STEPS, AGAIN)
    assert not plan.turn()
    assert states(jobs) == ["finished"]


@pytest.mark.parametrize("problem", [KeyboardInterrupt, RuntimeError])
def test_stopping_asks_every_run_to_save_and_starts_no_other(machine, problem):
    machine.places = 2
    plan, jobs = scheduler(machine, a="1", b="2", c="3")
    interrupts = iter([problem])

    def show(_jobs) -> None:
        for one in interrupts:
            raise one

    if problem is KeyboardInterrupt:
        plan.run(show, pause=0)
    else:
        with pytest.raises(RuntimeError):
            plan.run(show, pause=0)
    assert machine.canceled == [("a", False), ("b", False)]
    assert states(jobs) == ["stopped", "stopped", "waiting"]

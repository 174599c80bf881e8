"""Which run starts when, with processes that only pretend."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipseg.errors import UserError
from ipseg.sweep.launchers import make_slots, slots_note
from ipseg.sweep.schedule import RETRY, Job, Progress, Scheduler

STEPS = 3


class Pretended:
    """A machine on which a test says what becomes of runs."""

    def __init__(self, places: int = 9, *, dependencies: bool = False) -> None:
        self.places, self.dependencies = places, dependencies
        self.started: list[tuple[str, str | None]] = []
        self.seen: dict[str, Progress] = {}
        self.codes: dict[str, int | str | None] = {}
        self.asked: list[tuple[str, bool]] = []
        self.after: dict[str, str] = {}

    def has_slot(self) -> bool:
        return sum(code is None for code in self.codes.values()) < self.places

    def submit(self, name, source, *, base_step=False, after=None):
        name = f"{name} base step" if base_step else name
        self.started.append((name, source))
        self.codes[name] = None
        if after:
            self.after[name] = after.name  # it waits for that one, and has not begun
        else:
            self.at(name, self.seen.get(name, Progress()).finished)
        return PretendedJob(self, name)

    def at(self, name: str, finished: int, code: int | str | None = None) -> None:
        """The run has finished that many steps; with a code it has ended."""
        self.seen[name] = Progress(begun=True, finished=finished)
        self.codes[name] = code

    def look(self, job: Job) -> Progress:
        return self.seen.get(job.name, Progress())


class PretendedJob:
    def __init__(self, machine: Pretended, name: str) -> None:
        self.machine, self.name = machine, name

    def poll(self):
        return self.machine.codes[self.name]

    def cancel(self, *, kill: bool) -> None:
        self.machine.asked.append((self.name, kill))
        self.machine.codes[self.name] = 130


def scheduler(machine: Pretended, **bases: str) -> tuple[Scheduler, dict[str, Job]]:
    jobs = {name: Job(name, base, STEPS, Path("nowhere")) for name, base in bases.items()}
    return Scheduler(list(jobs.values()), machine, machine.look), jobs


def states(jobs: dict[str, Job]) -> list[str]:
    return [job.state for job in jobs.values()]


def test_a_base_step_is_learned_once_and_the_others_begin_as_soon_as_it_is_there():
    machine = Pretended()
    plan, jobs = scheduler(machine, a="x", b="x", c="x", d="y")
    plan.turn()
    assert machine.started == [("a", None), ("d", None)]
    assert jobs["b"].reason == "for a"
    machine.at("a", 1)
    plan.turn()
    assert machine.started[2:] == [("b", "a"), ("c", "a")]
    for name in "abcd":
        machine.at(name, STEPS, 0)
    assert not plan.turn()
    assert states(jobs) == ["finished"] * 4


def test_no_more_run_at_a_time_than_there_is_room_for():
    machine = Pretended(places=2)
    plan, jobs = scheduler(machine, a="1", b="2", c="3")
    plan.turn()
    assert states(jobs) == ["running", "running", "waiting"]
    machine.at("b", STEPS, 0)
    plan.turn()
    assert states(jobs) == ["running", "finished", "running"]


def test_a_failed_run_stops_no_other_and_the_next_learns_the_base_step():
    machine = Pretended()
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


def test_finished_runs_are_not_started_and_give_their_base_step():
    machine = Pretended()
    machine.at("a", STEPS)
    plan, jobs = scheduler(machine, a="x", b="x")
    plan.turn()
    assert machine.started == [("b", "a")]
    assert states(jobs) == ["finished", "running"]


def test_what_was_cut_goes_on_first_and_keeps_its_own_beginning():
    machine = Pretended(places=1)
    machine.at("a", 2, 130)
    machine.at("c", 0, 130)
    plan, _ = scheduler(machine, b="x", a="x", c="z")
    plan.turn()
    assert machine.started == [("a", None)]


def test_a_run_that_says_it_is_done_and_is_not_has_failed():
    machine = Pretended()
    plan, jobs = scheduler(machine, a="x")
    plan.turn()
    machine.at("a", 1, 0)
    assert not plan.turn()
    assert states(jobs) == ["failed"]


def test_a_run_of_another_sweep_is_waited_for_and_then_gone_on_with():
    machine = Pretended()
    plan, jobs = scheduler(machine, a="x")
    plan.turn()
    machine.at("a", 1, RETRY)
    plan.turn()
    assert machine.started == [("a", None), ("a", None)]
    machine.at("a", STEPS, RETRY)
    assert not plan.turn()
    assert states(jobs) == ["finished"]


@pytest.mark.parametrize("problem", [KeyboardInterrupt, RuntimeError])
def test_stopping_asks_every_run_to_save_and_starts_no_other(problem):
    machine = Pretended(places=2)
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
    assert machine.asked == [("a", False), ("b", False)]
    assert states(jobs) == ["stopped", "stopped", "waiting"]


def test_slots_are_dealt_out_over_the_gpus():
    assert [list(slot.gpus) for slot in make_slots(["0", "3"], None, 2)] == [["0"], ["3"], ["0"], ["3"]]
    assert [list(slot.gpus) for slot in make_slots(["0", "3"], 3, 2)] == [["0"], ["3"], ["0"]]
    assert [list(slot.gpus) for slot in make_slots([], 2, 4)] == [[], []]
    assert len(make_slots([], None, 4)) == 1
    assert [slot.gpus for slot in make_slots(list("01234"), None, processes=2)] == [["0", "1"], ["2", "3"]]
    with pytest.raises(UserError, match="--processes-per-run 4 needs as many GPUs; visible are 2"):
        make_slots(["0", "1"], None, processes=4)


def test_who_asks_for_more_runs_than_there_is_room_for_is_told():
    assert "2 runs at the same time, not 3: --jobs-per-gpu" in slots_note(["0", "3"], 3, 1)
    assert "--jobs-per-gpu does nothing" in slots_note([], None, 4)
    assert "2 runs at the same time, not 3: each has 2 GPUs" in slots_note(list("01234"), 3, processes=2)
    assert not any([slots_note([], 4, 1), slots_note(["0"], None, 9), slots_note(["0"], 2, 2)])


# ---- a launcher with dependencies between jobs ----------------------------------------------------------------------


def test_jobs_may_be_submitted_before_the_base_step_that_they_share_which_is_then_a_job_of_its_own():
    machine = Pretended(dependencies=True)
    plan, jobs = scheduler(machine, a="x", b="x", c="y")
    plan.turn()
    assert machine.started == [("a base step", None), ("a", None), ("b", "a"), ("c", None)]
    assert machine.after == {"a": "a base step", "b": "a base step"}
    assert states(jobs) == ["running"] * 3


def test_where_a_base_step_of_its_own_fails_the_next_run_trains_it():
    machine = Pretended(dependencies=True)
    plan, jobs = scheduler(machine, a="x", b="x", c="x")
    plan.turn()
    machine.codes |= {"a base step": 1, "a": RETRY, "b": RETRY, "c": RETRY}
    plan.turn()
    assert states(jobs) == ["failed", "running", "running"]
    assert jobs["a"].reason == "its base step failed"
    assert machine.started[4:] == [("b base step", None), ("b", None), ("c", "b")]
    assert machine.after["c"] == "b base step"


def test_stopping_also_cancels_base_steps():
    machine = Pretended(dependencies=True)
    plan, _ = scheduler(machine, a="x", b="x")
    plan.turn()
    plan.stop(lambda _jobs: None, pause=0)
    assert machine.asked == [("a base step", False), ("a", False), ("b", False)]

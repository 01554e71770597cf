"""Progress, interrupts and threads: one of each, shared by everything that takes long."""

from __future__ import annotations

import signal
import sys

import pytest
import torch

from headcount import progress
from headcount.interrupts import stoppable
from headcount.progress import Status, progress_bar, progress_line
from headcount.threads import torch_threads


def test_plain_lines_have_the_share_and_the_time_left(monkeypatch, capfd):
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    status = Status(0.0, "0 runs")
    with progress_bar("work", lambda: status) as refresh:
        refresh()
        status = Status(0.5, "5 runs", left=150)
        refresh()
    assert capfd.readouterr().err == "work: 0 runs\nwork: 5 runs, about 2.5 min left\n"


def test_the_time_left_follows_from_the_share_where_it_is_not_given(monkeypatch, capfd):
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    clock = iter([0.0, 30.0, 30.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress_bar("work", lambda: Status(0.25, "1 run")) as refresh:
        refresh()
    assert capfd.readouterr().err == "work: 1 run, about 90 s left\n"


def test_a_status_is_asked_for_only_when_a_line_is_due():
    asked = []
    with progress_bar("work", lambda: asked.append(1) or Status(0.0, "")) as refresh:
        refresh()
    assert not asked


def test_a_bar_is_drawn_on_a_terminal(monkeypatch, capfd):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bar("work", lambda: Status(0.5, "5 runs", left=150)) as refresh:
        refresh()
    assert capfd.readouterr().out == ""


def test_lines_that_come_too_soon_are_left_out(capfd):
    with progress_line(every=60) as tell:
        tell("first")
        tell("second")
    with progress_line() as tell:
        tell("third")
        tell("fourth")
    assert capfd.readouterr().err == "first\nthird\nfourth\n"


def test_the_first_interrupt_asks_and_the_second_stops(capfd):
    before = signal.getsignal(signal.SIGINT)
    with stoppable(message="stopping") as stop:
        assert not stop.asked
        signal.raise_signal(signal.SIGINT)
        assert stop.asked
        assert capfd.readouterr().err == "stopping\n"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_may_raise_at_once_and_still_be_seen():
    with stoppable(raises=True) as stop:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.asked


def test_threads_are_as_before_afterwards():
    before = torch.get_num_threads()
    with torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    with torch_threads(None):
        assert torch.get_num_threads() == before
    assert torch.get_num_threads() == before


def test_lines_about_parts_say_how_long_the_rest_takes(monkeypatch):
    monkeypatch.setattr(progress.time, "monotonic", lambda: 100.0)
    assert progress.time_left(40.0, 2, 6) == ", about 2.0 min left"
    assert progress.time_left(40.0, 0, 6) == progress.time_left(40.0, 6, 6) == ""


def test_quiet_progress_shows_nothing(monkeypatch, capfd):
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    with progress_bar("work", lambda: Status(0.5, "5 runs"), quiet=True) as refresh:
        refresh()
    with progress_line(quiet=True) as tell:
        tell("first")
    assert capfd.readouterr() == ("", "")

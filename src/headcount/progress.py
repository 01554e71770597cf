"""Progress of long work, on standard error: a bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

LINE_EVERY = 10.0  # seconds between plain lines
# What no terminal shows and some obey, but tab and line end: control characters, separators of
# lines, marks that turn the direction of a line and other formats (Unicode's categories Cc, Zl, Zp
# and Cf), and halves of surrogate pairs.
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
_FIRST_SHARE = 0.01  # of the work, before which the time left is anyone's guess


class Status(NamedTuple):
    """How far the work is: the share that is done (0 to 1), in words, and the seconds left.

    Without `left`, the display estimates it from the share and the time elapsed.
    """

    share: float
    text: str
    left: float | None = None


def printable(text: str) -> str:
    r"""The text with the codes of characters that command a terminal, or that no one would see.

    Names and notes come from files of others: escape sequences in them could move the cursor, or
    make a terminal type, and a mark of direction could make a line read backwards.

    >>> print(printable("\x1b[2Jred\x07, \x9b1m, \u202eback, a\nb"))
    \x1b[2Jred\x07, \x9b1m, \u202eback, a
    b
    """
    return UNSEEN.sub(lambda found: ascii(found.group())[1:-1], text)


def in_one_line(text: str) -> str:
    r"""The same with line ends shown as their codes, for a value in a line of its own.

    >>> print(in_one_line("a\nb"))
    a\nb
    """
    return printable(text).replace("\n", "\\n").replace("\t", " ")


def notice(text: str) -> None:
    """Print a line that is not the result on standard error, so that pipes stay clean."""
    print(printable(text), file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """A time with its unit.

    >>> [duration(seconds) for seconds in (3.21, 42, 150, 5400, 200_000)]
    ['3 s', '42 s', '2.5 min', '1.5 h', '2.3 days']
    """
    for unit, size, least in (("days", 86_400, 2 * 86_400), ("h", 3600, 3600), ("min", 60, 120)):
        if seconds >= least:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def time_left(began: float, done: float, total: float) -> str:
    """The end of a line about work that began at this `time.monotonic()`: how long the rest takes.

    >>> time_left(time.monotonic() - 60, 1, 4), time_left(time.monotonic(), 0, 4)
    (', about 3.0 min left', '')
    """
    if not 0 < done < total:
        return ""
    return f", about {duration((time.monotonic() - began) * (total - done) / done)} left"


class Lines:
    """Plain lines, no more often than every few seconds; a text is made only when it is printed."""

    def __init__(self, every: float = LINE_EVERY, at_once: bool = False) -> None:
        self._every = every
        self._last = float("-inf") if at_once else None  # None: the first call starts the clock

    def __call__(self, text: Callable[[], str]) -> None:
        """Print the text if it is time to."""
        now = time.monotonic()
        if self._last is None:
            self._last = now
        if now - self._last >= self._every:
            self._last = now
            notice(text())


@contextmanager
def progress_bar(
    title: str, status: Callable[[], Status], quiet: bool = False
) -> Iterator[Callable[[], None]]:
    """Show how far the work is whenever the function that this gives is called.

    `status` is asked at every call on a terminal, and otherwise once per line, about every 10 s.
    With `quiet` nothing is shown.
    """
    if quiet:
        yield lambda: None
        return
    began = time.monotonic()

    def text(now: Status) -> str:
        left = now.left
        if left is None and now.share >= _FIRST_SHARE:
            left = (time.monotonic() - began) * (1 - now.share) / now.share
        return now.text if left is None else f"{now.text}, about {duration(left)} left"

    if not sys.stderr.isatty():
        lines = Lines(LINE_EVERY)
        yield lambda: lines(lambda: f"{title}: {text(status())}")
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(in_one_line(title), total=1.0, text="")

        def refresh() -> None:
            now = status()
            bar.update(task, completed=now.share, text=text(now))

        yield refresh


@contextmanager
def progress_line(every: float = 0.0, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Show what the work is doing: one line that changes on a terminal, plain lines otherwise.

    Plain lines that come within `every` seconds of the last one are left out. With `quiet` nothing
    is shown.
    """
    if quiet:
        yield lambda text: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.text import Text

        with Console(stderr=True).status("…") as line:
            yield lambda text: line.update(Text(in_one_line(text)))
    else:
        lines = Lines(every, at_once=True)
        yield lambda text: lines(lambda: text)

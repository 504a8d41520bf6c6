"""What the measuring scripts have in common: the JSON lines that they print."""

import json
import os
import resource
import sys
import time


def cpu_seconds():
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(use.ru_utime + use.ru_stime for use in (own, children))


def load():
    return round(os.getloadavg()[0], 1)


def print_line(**values):
    short = {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in values.items()}
    print(json.dumps(short), flush=True)


class Stopwatch:
    """Seconds and processor seconds of a block."""

    def __enter__(self):
        self.start, self.cpu_start = time.perf_counter(), cpu_seconds()
        return self

    def __exit__(self, *_):
        self.seconds, self.cpu = time.perf_counter() - self.start, cpu_seconds() - self.cpu_start


def best_of(repeats, call):
    """The stopwatch of the fastest of some calls, after one that warms up."""
    call()
    watches = []
    for _ in range(repeats):
        with Stopwatch() as watch:
            call()
        watches.append(watch)
    return min(watches, key=lambda watch: watch.seconds)


def say(text):
    print(text, file=sys.stderr, flush=True)

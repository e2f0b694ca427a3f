"""In place of pyperf for pyperformance's programs: runs the benchmark in this process, a number of
times, and prints the CPU time that it took.
"""

import os
import sys
import time

LOOPS = int(os.environ.get("LOOPS", "1"))


def perf_counter():
    return time.process_time()


class Runner:
    def __init__(self, **options):
        import argparse

        self.metadata = {}
        self.argparser = argparse.ArgumentParser()

    def parse_args(self):
        self.args = self.argparser.parse_args()
        return self.args

    def bench_func(self, name, function, *arguments, **named):
        function(*arguments)
        start = time.process_time()
        for _ in range(LOOPS):
            function(*arguments)
        self._say(start)

    def bench_time_func(self, name, function, *arguments, **named):
        function(1, *arguments)
        start = time.process_time()
        function(LOOPS, *arguments)
        self._say(start)

    def bench_async_func(self, name, function, *arguments, **named):
        import asyncio

        async def loops():
            for _ in range(LOOPS):
                await function(*arguments)

        asyncio.run(function(*arguments))
        start = time.process_time()
        asyncio.run(loops())
        self._say(start)

    def _say(self, start):
        print("CPU", time.process_time() - start, file=sys.stderr)

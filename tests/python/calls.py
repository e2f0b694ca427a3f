"""Calls of every kind. With `count`, the interpreter counts those of this file's functions by its
own means (sys.setprofile), and prints them: `LINE COUNT NAME`.
"""

import asyncio
import collections
import contextlib, dis
import functools
import sys
import threading


def plain(n):
    return n + 1


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def numbers(n):
    for i in range(n):
        yield plain(i)


def delegating(n):
    yield from numbers(n)
    return n


def thrown_into():
    try:
        yield 1
    except KeyError:
        yield 2
    yield 3


def closed():
    try:
        yield 1
        yield 2
    finally:
        plain(1)


def raises(n):
    if n == 0:
        raise ValueError(n)
    raises(n - 1)


def catches(n):
    try:
        raises(n)
    except ValueError as error:
        return error


class Account:
    total = plain(1)

    def __init__(self, start):
        self.start = start

    @property
    def value(self):
        return self.start

    def __add__(self, other):
        return Account(self.value + other.value)

    def __lt__(self, other):
        return self.value < other.value

    def __getattr__(self, name):
        return name

    def __del__(self):
        collections.deque(maxlen=1).append(self.start)

    @staticmethod
    def fixed():
        return 1

    @classmethod
    def made(cls, start):
        return cls(start)


@contextlib.contextmanager
def managed():
    yield 1


@functools.lru_cache
def cached(n):
    return n


def key(x):
    return -x


async def awaited(n):
    await asyncio.sleep(0)
    return n


async def ticking(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i


async def main():
    results = await asyncio.gather(*[awaited(i) for i in range(5)])
    async for i in ticking(3):
        results.append(i)
    with contextlib.suppress(ValueError):
        await failing()
    return results


async def failing():
    await asyncio.sleep(0)
    raises(2)


def recursing(n):
    return recursing(n + 1)


def to_the_limit():
    try:
        recursing(0)
    except RecursionError:
        return True


def made(text):
    """A function of its own each time, all at one address perhaps."""
    space = {}
    exec(compile(f"def {text}(): return 1", __file__, "exec"), space)
    return space[text]()


def in_thread(n):
    for i in range(n):
        plain(i)
    list(numbers(n))


def work():
    fib(12)
    sum(numbers(10))
    list(delegating(4))
    generator = thrown_into()
    next(generator)
    generator.throw(KeyError())
    with contextlib.suppress(ZeroDivisionError):
        generator.throw(ZeroDivisionError())
    generator = closed()
    next(generator)
    generator.close()
    next(closed())
    closed()
    catches(5)
    accounts = sorted(Account.made(i) for i in (3, 1, 2))
    functools.reduce(Account.__add__, accounts)
    accounts[0].missing
    Account.fixed()
    sorted(range(20), key=key)
    with managed():
        plain(1)
    [cached(i % 3) for i in range(9)]
    (lambda: plain(1))()
    list(map(plain, range(5)))
    {plain(i): i for i in range(5)}
    asyncio.run(main())
    for i in range(50):
        made(f"made_{i % 25}")
    threads = [threading.Thread(target=in_thread, args=(n,)) for n in (10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


counts = collections.Counter()


# Ids of frames of coroutines that await: they go on in the same call.
waiting = set()


def awaits(frame, argument):
    # From 3.13 on, where it goes on.
    is_yield = dis.opname[frame.f_code.co_code[frame.f_lasti]] in ("YIELD_VALUE", "RESUME")
    return is_yield and "wrapped_value" not in type(argument).__name__


def profile(frame, event, argument):
    code = frame.f_code
    if code.co_filename != __file__ or code.co_name in ("profile", "awaits"):
        return
    if event == "return" and code.co_flags & 0x280 and awaits(frame, argument):
        waiting.add(id(frame))
    elif event == "call" and id(frame) in waiting:
        waiting.remove(id(frame))
    elif event == "call":
        counts[code.co_firstlineno, code.co_qualname] += 1


if __name__ == "__main__":
    if sys.argv[1:] == ["count"]:
        threading.setprofile(profile)
        sys.setprofile(profile)
    work()
    if sys.argv[1:] == ["count"]:
        sys.setprofile(None)
    for (line, name), count in sorted(counts.items()):
        print(line, count, name)
    to_the_limit()

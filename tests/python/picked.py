"""Calls of functions that are chosen by decorators, by depth and by name."""

import asyncio
import sys

import everycall


def leaf(number):
    return number + 1


@everycall.leave_out
def noisy(depth):
    leaf(depth)
    if depth:
        noisy(depth - 1)


@everycall.leave_out
def fails():
    leaf(0)
    raise ValueError


@everycall.leave_out
def numbers():
    yield leaf(1)
    yield leaf(2)


@everycall.select
def picked(text):
    everycall.label("inner")
    everycall.counter("half", 0.5)
    leaf(3)
    return text * 2


class Holder:
    @staticmethod
    @everycall.select
    def held():
        leaf(4)

    @everycall.select
    @classmethod
    def of_class(cls):
        leaf(5)


@everycall.select
async def waits():
    await pauses(2)


async def pauses(times):
    for _ in range(times):
        await asyncio.sleep(0)
        leaf(9)


def unpicked():
    """What it says belongs to whoever calls it, where it isn't recorded."""
    everycall.label("said", 7)
    return "unpicked's own"


def nested(depth):
    everycall.counter("depth", depth)
    if depth:
        nested(depth - 1)
        leaf(depth)


def around():
    unpicked()
    picked("two")


def main():
    around()
    noisy(2)
    try:
        fails()
    except ValueError:
        leaf(6)
    for _ in numbers():
        leaf(7)
    Holder.held()
    Holder.of_class()
    nested(4)
    asyncio.run(waits())
    leaf(8)


main()
print(sys.argv[1:])

"""Tasks that take each other's addresses: after their end, cancelled before they began, dropped while
they wait, and with loops that are closed.
"""

import asyncio
import gc
import sys

addresses = []


def leaf():
    return 1


async def ends():
    leaf()


async def yields():
    leaf()
    await asyncio.sleep(0)
    leaf()
    await asyncio.sleep(0.0001)
    leaf()


async def fails():
    try:
        await asyncio.sleep(0)
    finally:
        leaf()
    raise LookupError


async def never():
    leaf()


async def dropped(is_waiting):
    leaf()
    if is_waiting:
        await asyncio.get_running_loop().create_future()
    else:
        await asyncio.sleep(1000)


def begin(coroutine, name, number):
    task = asyncio.get_running_loop().create_task(coroutine, name=f"{name} {number}")
    addresses.append(id(task))
    return task


async def main(first):
    asyncio.get_running_loop().set_exception_handler(lambda *facts: None)
    for number in range(first, first + 10):
        await begin(ends(), "ends", number)
        cancelled = begin(never(), "never", number)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        del cancelled
        await begin(yields(), "yields", number)
        waiting = begin(dropped(True), "dropped", number)
        await asyncio.sleep(0)
        del waiting
        gc.collect()
        await asyncio.gather(begin(fails(), "fails", number), return_exceptions=True)
        await asyncio.gather(begin(yields(), "again", number), begin(ends(), "too", number))


def left_loop(number):
    """Whose tasks are never run again."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *facts: None)

    async def leave():
        begin(dropped(False), "left", number)
        await asyncio.sleep(0)

    loop.run_until_complete(leave())
    loop.close()


def python_task(loop, coroutine, **more):
    return asyncio.tasks._PyTask(coroutine, loop=loop, **more)


for first in range(0, 30, 10):
    loop = asyncio.new_event_loop()
    if first == 20:
        loop.set_task_factory(python_task)
    loop.run_until_complete(main(first))
    loop.close()
    left_loop(first)
    gc.collect()
print(len(addresses), len(set(addresses)))
assert len(set(addresses)) < len(addresses) / 2, sys.version

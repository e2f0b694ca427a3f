"""Tasks of asyncio: gathered, in a group, cancelled, failing, in event loops of threads."""

import asyncio
import sys
import threading
import types


def leaf():
    return 1


@types.coroutine
def bare():
    yield


async def read(seconds):
    await asyncio.sleep(seconds)
    return leaf()


async def fetch(times):
    for _ in range(times):
        await read(0.001)


async def recursive(depth):
    if depth:
        return await recursive(depth - 1)
    await asyncio.sleep(0.001)
    return leaf()


async def numbers():
    for number in range(2):
        await bare()
        yield number
        leaf()


async def iterating():
    async for number in numbers():
        await asyncio.sleep(0)


async def failing():
    await read(0.001)
    raise LookupError("no")


async def patient():
    try:
        await recursive(2)
    except asyncio.CancelledError:
        leaf()
        raise


async def persistent():
    """Is cancelled, and goes on."""
    for _ in range(2):
        try:
            await read(60 if _ == 0 else 0.001)
        except asyncio.CancelledError:
            leaf()


async def renamed():
    asyncio.current_task().set_name("another name")
    await asyncio.sleep(0)


async def main():
    await asyncio.gather(fetch(1), fetch(2))
    if hasattr(asyncio, "TaskGroup"):
        async with asyncio.TaskGroup() as group:
            group.create_task(fetch(3), name="grouped")
            group.create_task(iterating(), name="iterating")
            group.create_task(recursive(3), name="recursive")
            group.create_task(renamed())
    cancelled = [
        asyncio.create_task(patient(), name="cancelled"),
        asyncio.create_task(persistent(), name="persistent"),
        asyncio.create_task(failing(), name="failing"),
    ]
    await asyncio.sleep(0.001)
    cancelled[0].cancel()
    cancelled[1].cancel()
    print([type(result).__name__ for result in await asyncio.gather(*cancelled, return_exceptions=True)])


async def of_thread():
    await asyncio.gather(*[asyncio.create_task(fetch(1), name=f"in a thread {number}") for number in range(2)])


def nested():
    """A loop within a step of another one's task, which asyncio itself forbids: 3.14 in all ways."""
    if sys.version_info >= (3, 14):
        return
    loop = asyncio.new_event_loop()
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        task = loop.create_task(fetch(1), name="nested")
        loop.run_until_complete(task)
    finally:
        asyncio._set_running_loop(outer)
        loop.close()


async def around():
    nested()
    await asyncio.sleep(0)
    leaf()


async def begin_around():
    await asyncio.create_task(around(), name="around")


asyncio.run(main())
thread = threading.Thread(target=lambda: asyncio.run(of_thread()))
thread.start()
thread.join()
asyncio.run(begin_around())
print("done", sys.argv)

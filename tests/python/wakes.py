"""Tasks of asyncio that are woken in known functions, as often as they wait. With `uvloop`, in its
event loop, whose methods aren't Python's.
"""

import asyncio
import sys
import threading


async def receive(futures):
    for future in futures:
        await future


def give(future):
    if not future.done():
        future.set_result(1)


def give_from_thread(loop, future):
    loop.call_soon_threadsafe(give, future)


async def pause(times):
    for _ in range(times):
        await asyncio.sleep(0)


async def forever(depth):
    if depth:
        await forever(depth - 1)
    await asyncio.get_running_loop().create_future()


async def put(queue):
    for number in range(3):
        await asyncio.sleep(0.002)
        queue.put_nowait(number)


async def take(queue):
    for _ in range(3):
        await queue.get()


def begin(coroutine, name):
    return asyncio.get_running_loop().create_task(coroutine, name=name)


async def main(kind):
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(4)]
    receiver = begin(receive(futures), "receiver " + kind)
    for future in futures[:3]:
        await asyncio.sleep(0.002)
        give(future)
    await asyncio.sleep(0.002)
    thread = threading.Thread(target=give_from_thread, args=(loop, futures[3]))
    thread.start()
    thread.join()
    await receiver
    await begin(pause(5), "pauser " + kind)
    queue = asyncio.Queue()
    putter = begin(put(queue), "putter " + kind)
    taker = begin(take(queue), "taker " + kind)
    await asyncio.gather(putter, taker)
    stopped = begin(forever(2), "stopped " + kind)
    await asyncio.sleep(0.002)
    # These are no wakes, though they are methods of a task that are called soon.
    loop.call_soon(stopped.get_name)
    loop.call_soon(stopped.cancelled)
    await asyncio.sleep(0.002)
    stopped.cancel()
    try:
        await stopped
    except asyncio.CancelledError:
        pass


if sys.argv[1:] == ["uvloop"]:
    import uvloop

    uvloop.run(main("C"))
    loop = uvloop.new_event_loop()
else:
    asyncio.run(main("C"))
    loop = asyncio.new_event_loop()
loop.set_task_factory(lambda loop, coroutine, **more: asyncio.tasks._PyTask(coroutine, loop=loop, **more))
loop.run_until_complete(main("Python"))
loop.close()
print(type(loop).call_soon.__name__, "call_soon" in vars(type(loop)))
if "everycall" in sys.modules:
    sys.modules["everycall"].stop()
    assert "call_soon" not in vars(type(loop))

"""Greenlets of each kind: what each calls is known."""

import asyncio
import gc
import sys
import threading

import greenlet

main = greenlet.getcurrent()
said = []


def leaf():
    pass


def pauses(count):
    for _ in range(count):
        leaf()
        main.switch()


def outer(count):
    pauses(count)
    leaf()


def plain(count):
    outer(count)


def in_turns():
    """Each is left in `pauses`; `leaf` is called by the module in between."""
    all_of_them = [greenlet.greenlet(plain) for _ in range(3)]
    for number, one in enumerate(all_of_them):
        one.switch(number + 1)
        leaf()
    while not all(one.dead for one in all_of_them):
        for one in all_of_them:
            if not one.dead:
                one.switch()
                leaf()


def catches():
    try:
        pauses(9)
    except KeyError:
        leaf()
        main.switch()
    leaf()


def thrown():
    one = greenlet.greenlet(catches)
    one.switch()
    one.throw(KeyError)
    one.switch()
    assert one.dead


def passes():
    pauses(9)


def raised():
    one = greenlet.greenlet(passes)
    one.switch()
    try:
        one.throw(LookupError)
    except LookupError:
        leaf()
    assert one.dead


def collected():
    """Never ends by itself: it is left where its last reference goes."""
    pauses(9)


class Own(greenlet.greenlet):
    def run(self):
        pauses(9)


def dropped():
    for kind in (lambda: greenlet.greenlet(collected), Own):
        for _ in range(3):
            one = kind()
            one.switch()
            del one
            leaf()
    one = greenlet.greenlet(collected)
    one.itself = one
    one.switch()
    del one
    gc.collect()


def passing_on(others):
    leaf()
    if others:
        others[0].switch(others[1:])
    leaf()


def chain():
    """Each switches to the next one, not to the main one."""
    others = [greenlet.greenlet(passing_on) for _ in range(3)]
    others[0].switch(others[1:])
    for one in others[:-1]:
        one.switch()


def values():
    leaf()
    main.switch()
    yield 1
    leaf()
    main.switch()
    yield 2


def generates():
    for _ in values():
        leaf()


def generator():
    one = greenlet.greenlet(generates)
    while not one.dead:
        one.switch()


async def step():
    leaf()
    main.switch()
    await asyncio.sleep(0)
    leaf()


async def looping():
    await step()
    main.switch()


def loop():
    asyncio.run(looping())


def has_loop():
    """A loop in a greenlet, whose tasks are left in the middle of a step."""
    one = greenlet.greenlet(loop)
    while not one.dead:
        one.switch()


def awaits(around, value):
    """A function that waits for its event loop though it isn't a coroutine."""
    leaf()
    around.switch(value)
    leaf()


async def spawning():
    one = greenlet.greenlet(awaits)
    waits = one.switch(greenlet.getcurrent(), asyncio.sleep(0))
    await waits
    leaf()
    one.switch()
    assert one.dead


def in_thread():
    def turns():
        leaf()
        around.switch()
        leaf()

    around = greenlet.getcurrent()
    one = greenlet.greenlet(turns)
    one.switch()
    leaf()
    one.switch()


def traced():
    """The program's own trace function is called as without everycall."""
    events = []

    def own(event, arguments):
        events.append(event)

    assert greenlet.gettrace() is None
    assert greenlet.settrace(own) is None
    assert greenlet.gettrace() is own
    one = greenlet.greenlet(plain)
    one.switch(1)
    one.switch()
    assert one.dead
    assert greenlet.settrace(None) is own
    said.append(events)

    def fails(event, arguments):
        greenlet_calls.append(event)
        raise ZeroDivisionError

    greenlet_calls = []
    one = greenlet.greenlet(outer)
    greenlet.settrace(fails)
    try:
        one.switch(1)
    except ZeroDivisionError:
        said.append("raised")
    said.append(greenlet.gettrace())
    said.append(greenlet_calls)


in_turns()
thrown()
raised()
dropped()
chain()
generator()
has_loop()
asyncio.run(spawning())
thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
traced()
# It goes on as before.
last = greenlet.greenlet(plain)
last.switch(1)
leaf()
last.switch()
print(said, len(sys.argv))

"""Recording begins, ends and begins again while calls are open, in another thread, too."""
import threading

import everycall

go, ready = threading.Event(), threading.Event()


def waits():
    def waits_inside():
        ready.set()
        go.wait()

    waits_inside()


def numbers():
    yield 1
    yield 2


def f():
    pass


def outer():
    generator = numbers()
    next(generator)

    def begins():
        everycall.start()
        f()
        next(generator)
        goes_on()

    def goes_on():
        everycall.stop()

        def while_stopped():
            everycall.start()
            f()

        while_stopped()
        f()

    begins()


def raises():
    everycall.stop()

    def begins_and_raises():
        everycall.start()
        raise KeyError(1)

    begins_and_raises()


thread = threading.Thread(target=waits)
thread.start()
ready.wait()
outer()
go.set()
thread.join()
try:
    raises()
except KeyError:
    pass

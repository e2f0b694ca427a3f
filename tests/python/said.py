"""Calls of functions in C, with arguments and results, imports, records of logging, collections."""

import gc
import logging
import math
import sys
import threading


class Odd:
    def __repr__(self):
        raise ValueError("no")


class Odder:
    def __repr__(self):
        raise KeyboardInterrupt


class Endless:
    def __repr__(self):
        return repr(self)


class Shown:
    def __repr__(self):
        return inner_of_repr()


def inner_of_repr():
    return "shown"


def work():
    """What sys.setprofile counts as calls of C functions."""
    values = [3, 1, 2]
    for value in values:
        math.gcd(value, 4)
    sorted(values, key=abs)
    values.index(2)
    "a b".split()
    values.copy().reverse()
    dict.fromkeys(values)
    try:
        values.remove(99)
    except ValueError:
        pass
    try:
        math.sqrt(-1)
    except ValueError:
        pass
    method = values.count
    method(1)
    return list(map(str.upper, ["a"]))


def described(a, b=2, *rest, key=None, **more):
    return [a, b]


def of_cell(value):
    return (lambda: value)()


def generator(value):
    yield value + 1


def recursive(n):
    return n if n == 0 else recursive(n - 1)


def main():
    if sys.argv[1] == "count":
        counts = {}

        def count(frame, event, function):
            if event == "c_call":
                own = function.__self__
                is_function = own is None or type(own) is type(sys)
                name = f"{function.__module__}.{function.__name__}" if is_function else function.__qualname__
                counts[name] = counts.get(name, 0) + 1

        sys.setprofile(count)
        work()
        sys.setprofile(None)
        del counts["sys.setprofile"]
        for name, times in sorted(counts.items()):
            print(times, name)
        return
    for _ in range(int(sys.argv[2])):
        work()
    thread = threading.Thread(target=math.factorial, args=(5,))
    thread.start()
    thread.join()
    described(1, "two", 3, key=Odd(), other="x" * 1000)
    described(Odder(), Endless(), Shown())
    of_cell(7)
    list(generator(4))
    try:
        recursive(100000)
    except RecursionError:
        print("too deep")
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    logger = logging.getLogger("app")
    logger.warning("hello %s", "you")
    logger.info("not at this level")
    logger.error("%s", Shown())
    import colorsys

    gc.collect()
    print("done", colorsys.__name__)


main()

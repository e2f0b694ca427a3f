"""Calls whose tree is known."""


def leaf():
    pass


def outer():
    leaf()
    inner()


def inner():
    leaf()
    leaf()


def numbers():
    leaf()
    yield 1
    yield 2


def consume():
    for _ in numbers():
        leaf()


def raising():
    leaf()
    raise LookupError("none")


def middle():
    raising()


def catching():
    try:
        middle()
    except LookupError:
        leaf()


def begin():
    outer()
    consume()
    catching()


begin()

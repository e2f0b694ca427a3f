"""Recording starts in a greenlet, and starts again, while others are left in calls."""

import everycall
import greenlet

main = greenlet.getcurrent()


def leaf():
    pass


def pauses(count):
    for _ in range(count):
        leaf()
        main.switch()


def plain(count):
    pauses(count)
    leaf()


def starter():
    everycall.start()
    leaf()
    main.switch()
    leaf()


before = greenlet.greenlet(plain)
before.switch(2)
starting = greenlet.greenlet(starter)
starting.switch()
leaf()
before.switch()
leaf()
before.switch()
within = greenlet.greenlet(plain)
within.switch(1)
leaf()
starting.switch()
within.switch()
leaf()
everycall.stop()
assert greenlet.gettrace() is None
across = greenlet.greenlet(plain)
across.switch(1)
everycall.start()
across.switch()
leaf()
print(everycall.status()["misplaced"])

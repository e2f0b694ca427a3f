"""Calls that take long and calls that don't, in threads and children; `loop`: until somebody ends it."""
import os
import sys
import threading
import time


def handle(milliseconds):
    time.sleep(milliseconds / 1000)


def quick():
    pass


def fails():
    raise ValueError("so")


class Server:
    def handle(self, milliseconds):
        handle(milliseconds)


def work():
    for milliseconds in (1, 40, 1, 50):
        handle(milliseconds)
        quick()
    Server().handle(30)
    try:
        fails()
    except ValueError:
        pass


if sys.argv[1:] == ["loop"]:
    print("ready", flush=True)
    while True:
        work()
work()
thread = threading.Thread(target=work)
thread.start()
thread.join()
# A function whose name is told after those calls.
exec("def late(milliseconds): handle(milliseconds)")
late(1)
late(45)
if os.fork() == 0:
    work()
    late(45)
    os._exit(0)
os.wait()

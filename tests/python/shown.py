"""Functions of two modules with one name, and threads with names of their own."""

import os
import threading

import shown_library


def user(n):
    return shown_library.user(n)


def named():
    user(1)
    return open(f"/proc/self/task/{threading.get_native_id()}/comm").read().strip()


def renamed():
    threading.current_thread().name = "renamed meanwhile"
    user(2)


if __name__ == "__main__":
    names = []
    threads = [
        threading.Thread(target=lambda: names.append(named()), name="a worker with a long name"),
        threading.Thread(target=renamed),
    ]
    for thread in threads:
        thread.start()
        thread.join()
    user(3)
    # As the system names them.
    print(names, open(f"/proc/self/task/{os.getpid()}/comm").read())

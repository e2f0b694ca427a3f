"""Processes of every kind, each of which calls a function of its own name as often as it is told."""

import multiprocessing
import os
import subprocess
import sys
import threading


def called(kind, times):
    """Calls a function of this name."""
    space = {}
    exec(compile(f"def in_{kind}(): pass", "kinds.py", "exec"), space)
    for _ in range(times):
        space[f"in_{kind}"]()


def forked(kind, times, end):
    child = os.fork()
    if child == 0:
        called(kind, times)
        end(0)
    os.waitpid(child, 0)


def command(kind, times):
    return f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import children; children.called({kind!r}, {times})"


def main():
    called("itself", 3)
    forked("fork", 4, os._exit)
    # While another thread is there, and by a thread.
    thread = threading.Thread(target=forked, args=("fork_of_thread", 5, os._exit))
    thread.start()
    thread.join()
    subprocess.run([sys.executable, "-c", command("subprocess", 6)], check=True)
    subprocess.run(["python3", "-c", command("name", 7)], check=True)
    os.system(f"python3 -c \"{command('system', 8)}\"")
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        process = context.Process(target=called, args=(f"multiprocessing_{method}", 9))
        process.start()
        process.join()
    if sys.argv[1:] == ["exec"]:
        os.execv(sys.executable, [sys.executable, "-c", command("exec", 10)])
    os._exit(3)


if __name__ == "__main__":
    main()

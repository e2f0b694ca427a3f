"""gevent: a pool, queues, sleeps and sockets, whose greenlets are left in the middle of calls."""

import gevent
import gevent.pool
import gevent.queue
from gevent import monkey

monkey.patch_all()

import socket
import time


def leaf():
    pass


def works(number):
    leaf()
    time.sleep(0.001)
    leaf()
    return number


def putter(queue):
    for number in range(3):
        queue.put(number)
        gevent.sleep(0)


def taker(queue):
    for _ in range(3):
        queue.get()
        leaf()


def answers(listening):
    connection, _ = listening.accept()
    connection.recv(10)
    leaf()
    connection.sendall(b"answer")
    connection.close()


def asks(address):
    connection = socket.create_connection(address)
    connection.sendall(b"question")
    leaf()
    connection.recv(10)
    connection.close()


pool = gevent.pool.Pool(4)
assert sorted(pool.map(works, range(12))) == list(range(12))
queue = gevent.queue.Queue(1)
gevent.joinall([gevent.spawn(putter, queue), gevent.spawn(taker, queue)], raise_error=True)
listening = socket.create_server(("127.0.0.1", 0))
gevent.joinall([gevent.spawn(answers, listening), gevent.spawn(asks, listening.getsockname())], raise_error=True)
print("done")

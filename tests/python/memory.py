"""Functions that allocate; `_memory_counter` counts the blocks of each, and prints them as `name blocks bytes`."""

import sys

import _memory_counter as counter


def objects():
    counter.begin(0)
    kept = [object() for _ in range(100)]
    counter.end()
    return kept


def growing():
    counter.begin(1)
    text = []
    for number in range(300):
        text.append(str(number))
    text = "".join(text)
    counter.end()
    return text


def large():
    counter.begin(2)
    kept = bytearray(1 << 20)
    counter.end()
    return kept




def nested(depth):
    if depth == 0:
        return None
    counter.begin(3)
    node = {"depth": depth * 1000, "name": "node %d" % depth}
    counter.end()
    nested(depth - 1)
    return node


for _ in range(int(sys.argv[1])):
    objects()
    growing()
    large()
    nested(4)
for index, name in enumerate(["objects", "growing", "large", "nested"]):
    print(name, *counter.counted(index))

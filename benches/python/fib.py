"""Fibonacci's numbers: nothing but calls."""

import pyperf


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


if __name__ == "__main__":
    pyperf.Runner().bench_func("fib", fib, 25)

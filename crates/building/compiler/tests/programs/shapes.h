// Shared by both C++ files: inline functions and templates end up in COMDAT groups of both.
#pragma once

#define NOINLINE __attribute__((noinline))

extern "C" int t_plain(int x);
extern "C" int t_leaf(int x);

namespace tt {

struct First { virtual int one(int x); virtual ~First() {} int a = 1; };
struct Second { virtual int two(int x); virtual Second *self(); virtual ~Second() {} int b = 2; };
struct Both : First, Second {
    int one(int x) override;
    int two(int x) override;
    Both *self() override;
};

template <class T> NOINLINE T twice(T x) { return x + x; }
template <class T, int N> struct Array {
    T items[N] = {};
    NOINLINE T &at(int i) { if (i < 0 || i >= N) throw i; return items[i]; }
    ~Array() { t_leaf(0); }
};
inline NOINLINE int comdat(int x) { __asm__ volatile(""); return twice(x) + 1; }

int use(int x);
int catching(int x);
[[noreturn]] void t_noreturn_throw(int x);

}

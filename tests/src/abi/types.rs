//! The types that arguments and results have: at least one for each class of the x86-64 ABI, and
//! for each way in which classes meet in a structure.

/// Which languages and processors know a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// All do.
    Nothing,
    /// C only: no C++ compiler, or not every one, has it.
    C,
    /// C++.
    Cxx,
    /// 256-bit vectors.
    Avx,
    /// 512-bit vectors.
    Avx512,
}

/// Bytes of a value that carry meaning: their offset and type. Calls don't preserve padding.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// Any bits will do: offset and size in bytes.
    Bits(u8, u8),
    /// An 80-bit floating-point number at an offset in bytes.
    Extended(u8),
    /// A truth value at an offset in bytes.
    Truth(u8),
}

/// A type of arguments and results.
#[derive(Debug)]
pub(super) struct Type {
    /// Its name in the generated program.
    pub(super) name: &'static str,
    /// The declaration that the program needs for it, or nothing.
    pub(super) definition: &'static str,
    /// The bytes that count.
    pub(super) parts: &'static [Part],
    /// Who knows it.
    pub(super) needs: Needs,
    /// How it is passed, in short.
    pub(super) class: Class,
}

/// How a type is passed, as far as the generator has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// An integer or pointer in one general register; not promoted in variable arguments.
    Integer,
    /// A `double`; not promoted in variable arguments.
    Double,
    /// Changed by the promotions of variable arguments.
    Promoted,
    /// Everything else.
    Other,
}

use Class::{Double, Integer, Other, Promoted};
use Needs::{Avx, Avx512, C, Cxx, Nothing};
use Part::{Bits, Extended, Truth};

const fn of(
    name: &'static str,
    definition: &'static str,
    parts: &'static [Part],
    needs: Needs,
    class: Class,
) -> Type {
    Type { name, definition, parts, needs, class }
}

/// All types.
pub(super) const TYPES: &[Type] = &[
    // Integers.
    of("truth", "typedef _Bool truth;", &[Truth(0)], C, Promoted),
    of("char", "", &[Bits(0, 1)], Nothing, Promoted),
    of("ushort", "", &[Bits(0, 2)], Nothing, Promoted),
    of("int", "", &[Bits(0, 4)], Nothing, Integer),
    of("ulong", "", &[Bits(0, 8)], Nothing, Integer),
    of("pointer", "typedef void *pointer;", &[Bits(0, 8)], Nothing, Integer),
    of("wide", "typedef __int128 wide;", &[Bits(0, 16)], Nothing, Other),
    // Floating point: vector registers, and the x87 stack for results.
    of("half", "typedef _Float16 half;", &[Bits(0, 2)], C, Promoted),
    of("float", "", &[Bits(0, 4)], Nothing, Promoted),
    of("double", "", &[Bits(0, 8)], Nothing, Double),
    of("extended", "typedef long double extended;", &[Extended(0)], Nothing, Other),
    of("quad", "typedef __float128 quad;", &[Bits(0, 16)], Nothing, Other),
    of("complex_float", "typedef _Complex float complex_float;", &[Bits(0, 8)], Nothing, Other),
    of("complex_double", "typedef _Complex double complex_double;", &[Bits(0, 16)], Nothing, Other),
    of(
        "complex_extended",
        "typedef _Complex long double complex_extended;",
        &[Extended(0), Extended(16)],
        Nothing,
        Other,
    ),
    // Vectors.
    of("v8", "typedef int v8 __attribute__((vector_size(8)));", &[Bits(0, 8)], Nothing, Other),
    of("v16i", "typedef int v16i __attribute__((vector_size(16)));", &[Bits(0, 16)], Nothing, Other),
    of("v16d", "typedef double v16d __attribute__((vector_size(16)));", &[Bits(0, 16)], Nothing, Other),
    of("v32", "typedef float v32 __attribute__((vector_size(32)));", &[Bits(0, 32)], Avx, Other),
    of("v64", "typedef double v64 __attribute__((vector_size(64)));", &[Bits(0, 64)], Avx512, Other),
    of("s_v32", "typedef struct { v32 a; } s_v32;", &[Bits(0, 32)], Avx, Other),
    of("s_v64", "typedef struct { v64 a; } s_v64;", &[Bits(0, 64)], Avx512, Other),
    // Structures in registers: general, vector, both in both orders.
    of("s_c", "typedef struct { char a; } s_c;", &[Bits(0, 1)], Nothing, Other),
    of("s_c3", "typedef struct { char a[3]; } s_c3;", &[Bits(0, 3)], Nothing, Other),
    of("s_ii", "typedef struct { int a, b; } s_ii;", &[Bits(0, 8)], Nothing, Other),
    of("s_ll", "typedef struct { long a, b; } s_ll;", &[Bits(0, 16)], Nothing, Other),
    of("s_c16", "typedef struct { char a[16]; } s_c16;", &[Bits(0, 16)], Nothing, Other),
    of(
        "s_bits",
        "typedef struct { unsigned long a : 5, b : 40, c : 19; } s_bits;",
        &[Bits(0, 8)],
        Nothing,
        Other,
    ),
    of("s_w", "typedef struct { __int128 a; } s_w;", &[Bits(0, 16)], Nothing, Other),
    of("s_f", "typedef struct { float a; } s_f;", &[Bits(0, 4)], Nothing, Other),
    of("s_ff", "typedef struct { float a, b; } s_ff;", &[Bits(0, 8)], Nothing, Other),
    of("s_fff", "typedef struct { float a, b, c; } s_fff;", &[Bits(0, 12)], Nothing, Other),
    of("s_dd", "typedef struct { double a, b; } s_dd;", &[Bits(0, 16)], Nothing, Other),
    of("s_ld", "typedef struct { long a; double b; } s_ld;", &[Bits(0, 16)], Nothing, Other),
    of("s_dl", "typedef struct { double a; long b; } s_dl;", &[Bits(0, 16)], Nothing, Other),
    of("s_fl", "typedef struct { float a; long b; } s_fl;", &[Bits(0, 4), Bits(8, 8)], Nothing, Other),
    of("s_if", "typedef struct { int a; float b; } s_if;", &[Bits(0, 8)], Nothing, Other),
    of("s_v16", "typedef struct { v16i a; } s_v16;", &[Bits(0, 16)], Nothing, Other),
    of("u_ld", "typedef union { long a; double b; } u_ld;", &[Bits(0, 8)], Nothing, Other),
    // Structures that are passed in memory, and returned there or on the x87 stack.
    of("s_x", "typedef struct { long double a; } s_x;", &[Extended(0)], Nothing, Other),
    of(
        "s_lx",
        "typedef struct { long a; long double b; } s_lx;",
        &[Bits(0, 8), Extended(16)],
        Nothing,
        Other,
    ),
    of("s_lll", "typedef struct { long a, b, c; } s_lll;", &[Bits(0, 24)], Nothing, Other),
    of("s_c17", "typedef struct { char a[17]; } s_c17;", &[Bits(0, 17)], Nothing, Other),
    of("s_d4", "typedef struct { double a[4]; } s_d4;", &[Bits(0, 32)], Nothing, Other),
    of(
        "s_packed",
        "typedef struct __attribute__((packed)) { char a; long b; } s_packed;",
        &[Bits(0, 9)],
        Nothing,
        Other,
    ),
    of("s_c200", "typedef struct { char a[200]; } s_c200;", &[Bits(0, 200)], Nothing, Other),
    // A class with a copy constructor: passed and returned by reference.
    of(
        "counted",
        "struct counted {\n    long a; double b;\n    counted() {}\n    counted(const counted &from) : a(from.a), b(from.b) { take(&a, 8); }\n    ~counted() { take(&b, 8); }\n};",
        &[Bits(0, 16)],
        Cxx,
        Other,
    ),
];

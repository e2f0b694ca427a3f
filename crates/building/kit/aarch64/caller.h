#pragma once

// The stack pointer of a wrapper's caller.
#define EVERYCALL_HERE ((uint64_t)__builtin_dwarf_cfa())

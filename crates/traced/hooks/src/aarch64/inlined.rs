//! Members of `std::string` that clang refers to, although they exist only inlined.
//!
//! clang 19 with `-finstrument-functions` passes the address of each function whose body it
//! inlines. libstdc++ always inlines these members, while its `extern template` promises a
//! definition in the library that doesn't exist. So a program that uses `std::string` would not
//! link. (clang 22 doesn't refer to them.) This file defines them. Nothing calls them: they only
//! name the hooks' events. They are weak, for programs that have definitions of their own.
#![allow(unsafe_code)] // Assembly.

use core::arch::global_asm;

global_asm!(
    "
    .macro everycall_inlined name
    .weak   \\name
    .hidden \\name
    .type   \\name, %function
\\name:
        udf     #0
    .size   \\name, . - \\name
    .endm

    .section .text.everycall_inlined, \"ax\", %progbits
    // C++11 to 17: basic_string<char>, basic_string<wchar_t>
    everycall_inlined _ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE17_M_use_local_dataEv
    everycall_inlined _ZNSt7__cxx1112basic_stringIwSt11char_traitsIwESaIwEE17_M_use_local_dataEv
    // libstdc++ 13 and later
    everycall_inlined _ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE17_M_init_local_bufEv
    everycall_inlined _ZNSt7__cxx1112basic_stringIwSt11char_traitsIwESaIwEE17_M_init_local_bufEv
    // C++20: allocator<char>, allocator<wchar_t>
    everycall_inlined _ZNSaIcE8allocateEm
    everycall_inlined _ZNSaIcE10deallocateEPcm
    everycall_inlined _ZNSaIwE8allocateEm
    everycall_inlined _ZNSaIwE10deallocateEPwm
    .text
    ",
);

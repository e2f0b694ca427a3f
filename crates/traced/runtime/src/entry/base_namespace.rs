//! A module loaded with `dlmopen` has a namespace of its own, which doesn't include the program's
//! symbols. It finds the process's runtime through the list of objects that the dynamic linker
//! keeps for debuggers.
#![allow(unsafe_code)] // The dynamic linker's lists, by their addresses.

use core::ffi::CStr;

const DT_NULL: u64 = 0;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// Limit on the objects that are checked: more than any program has.
const OBJECTS_MAX: usize = 1 << 16;

/// `struct r_debug`, up to the last field that is needed.
#[repr(C)]
struct Debug {
    version: i32,
    objects: *const Object,
}

/// `struct link_map`.
#[repr(C)]
struct Object {
    base: u64,
    name: *const u8,
    dynamic: *const [u64; 2],
    next: *const Object,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// Returns the address of a symbol that an object of the base namespace defines, or null.
///
/// # Safety
/// Call it only from an initialiser that the dynamic linker runs: the list of objects doesn't
/// change there.
pub(crate) unsafe fn find(name: &CStr) -> *const u8 {
    // SAFETY: by contract, and by what the dynamic linker promises debuggers.
    unsafe {
        let debug: *const Debug = everycall_hooks::arch::debugger_objects().cast();
        let Some(debug) = debug.as_ref().filter(|debug| debug.version > 0) else { return core::ptr::null() };
        let mut object = debug.objects;
        for _ in 0..OBJECTS_MAX {
            let Some(this) = object.as_ref() else { break };
            if let Some(address) = defined_in(this, name) {
                return address as *const u8;
            }
            object = this.next;
        }
        core::ptr::null()
    }
}

/// The value of a dynamic section's entry.
unsafe fn entry(mut dynamic: *const [u64; 2], tag: u64) -> Option<u64> {
    // SAFETY: a dynamic section ends with DT_NULL.
    unsafe {
        while !dynamic.is_null() && (*dynamic)[0] != DT_NULL {
            if (*dynamic)[0] == tag {
                return Some((*dynamic)[1]).filter(|value| *value != 0);
            }
            dynamic = dynamic.add(1);
        }
        None
    }
}

/// The address of a symbol, by the object's hash table.
unsafe fn defined_in(object: &Object, name: &CStr) -> Option<u64> {
    // SAFETY: the dynamic linker has relocated the addresses in the dynamic section. The vDSO's
    // section is read-only, so its addresses are still relative: they are below its base.
    unsafe {
        let address = |tag: u64| {
            let value = entry(object.dynamic, tag)?;
            Some(if value < object.base { value.wrapping_add(object.base) } else { value })
        };
        let (hashes, symbols, names) = (address(DT_GNU_HASH)?, address(DT_SYMTAB)?, address(DT_STRTAB)?);
        let [buckets, first, bloom_words, _] = *(hashes as *const [u32; 4]);
        let bucket_table = (hashes + 16 + u64::from(bloom_words) * 8) as *const u32;
        let chain_table = bucket_table.add(buckets as usize);
        let hash = name
            .to_bytes()
            .iter()
            .fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()));
        let mut index = *bucket_table.add(hash.checked_rem(buckets)? as usize);
        if index < first {
            return None;
        }
        loop {
            let found = *chain_table.add((index - first) as usize);
            let symbol = &*(symbols as *const Symbol).add(index as usize);
            if found | 1 == hash | 1
                && symbol.section != 0
                && is_same((names + u64::from(symbol.name)) as *const u8, name)
            {
                return Some(object.base.wrapping_add(symbol.value));
            }
            if found & 1 != 0 {
                return None;
            }
            index = index.wrapping_add(1);
        }
    }
}

/// Whether a C string is `name`.
unsafe fn is_same(text: *const u8, name: &CStr) -> bool {
    // SAFETY: the comparison stops at the first byte that differs, at the latest at the end of the
    // string.
    name.to_bytes_with_nul().iter().enumerate().all(|(place, byte)| unsafe { *text.add(place) } == *byte)
}

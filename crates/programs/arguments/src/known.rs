//! Types of the standard libraries, by their names: their members are private, and compilers may
//! leave them out (clang declares `std::string` alone).

use crate::types::{Aggregate, Kind, Type, TypeId, Types};

/// How deep a pointer may lie within a type of Rust's library.
const DEPTH_MAX: usize = 8;

/// A type that is shown by what it means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Representation {
    /// Pointer and length in bytes, at these offsets.
    Text { pointer: u64, length: u64 },
    /// libc++'s string: short ones lie in the object.
    ShortText,
    /// A pointer to the text; the length lies before it.
    CountedText,
    /// Begin and end, at these offsets.
    Range { begin: u64, end: u64, element: TypeId },
    /// Pointer and number of elements, at these offsets.
    Elements { pointer: u64, count: u64, element: TypeId },
    /// The value at offset 0, and whether there is one, at this offset.
    Optional { engaged: u64, value: TypeId },
    /// A pointer at offset 0.
    Owner { target: TypeId },
    /// Rust's duration: offsets of seconds and nanoseconds.
    Duration { seconds: u64, nanoseconds: u64 },
}

/// A type's role in a standard library.
pub(crate) fn known(types: &mut Types<'_, '_>, ty: &Type) -> Option<Representation> {
    let Kind::Aggregate(it) = &ty.kind else { return None };
    let argument = it.arguments.first().copied();
    let name = ty.name.as_str();
    if let Some(rest) = name.strip_prefix("std::") {
        return of_cpp(types, rest, ty.size, argument);
    }
    if name == "core::time::Duration" {
        let seconds = it.members.iter().find(|member| member.name == "secs")?.offset;
        let nanoseconds = it.members.iter().find(|member| member.name == "nanos")?.offset;
        return Some(Representation::Duration { seconds, nanoseconds });
    }
    if name.starts_with('&') && ty.size == 16 {
        let pointer = it.members.iter().find(|member| member.name == "data_ptr")?;
        let length = it.members.iter().find(|member| member.name == "length")?.offset;
        let is_path = ["std::path::Path", "std::ffi::os_str::OsStr"].iter().any(|path| name.ends_with(path));
        if name.ends_with("str") || is_path {
            return Some(Representation::Text { pointer: pointer.offset, length });
        }
        let Kind::Pointer { to: Some(element), .. } = types.get(pointer.ty).kind.clone() else { return None };
        return Some(Representation::Elements { pointer: pointer.offset, count: length, element });
    }
    if matches!(name, "alloc::string::String" | "std::path::PathBuf" | "std::ffi::os_str::OsString") {
        let (pointer, length) = vector(types, it, 0)?;
        return Some(Representation::Text { pointer, length });
    }
    if name.starts_with("alloc::vec::Vec<") {
        let (pointer, count) = vector(types, it, 0)?;
        return Some(Representation::Elements { pointer, count, element: argument? });
    }
    None
}

fn of_cpp(
    types: &mut Types<'_, '_>,
    name: &str,
    size: u64,
    argument: Option<TypeId>,
) -> Option<Representation> {
    let (is_libcpp, name) = match name.strip_prefix("__1::").or(name.strip_prefix("__2::")) {
        Some(rest) => (true, rest),
        None => (false, name),
    };
    let (is_new, name) = match name.strip_prefix("__cxx11::") {
        Some(rest) => (true, rest),
        None => (false, name),
    };
    if name.starts_with("basic_string<char,") || name == "basic_string<char>" {
        return match (is_libcpp, is_new) {
            (true, _) => Some(Representation::ShortText),
            (false, true) => Some(Representation::Text { pointer: 0, length: 8 }),
            (false, false) => Some(Representation::CountedText),
        };
    }
    if name.starts_with("basic_string_view<char,") || name == "basic_string_view<char>" {
        let (pointer, length) = if is_libcpp { (0, 8) } else { (8, 0) };
        return Some(Representation::Text { pointer, length });
    }
    let template = name.split('<').next()?;
    let element = argument?;
    match template {
        "vector" if !matches!(types.get(element).kind, Kind::Bool) => {
            Some(Representation::Range { begin: 0, end: 8, element })
        }
        "span" if size == 16 => Some(Representation::Elements { pointer: 0, count: 8, element }),
        "optional" => {
            let inner = types.get(element).size;
            (inner > 0 && size > inner).then_some(Representation::Optional { engaged: inner, value: element })
        }
        "unique_ptr" if size == 8 => Some(Representation::Owner { target: element }),
        "shared_ptr" => Some(Representation::Owner { target: element }),
        _ => None,
    }
}

/// Where the pointer and the length of Rust's `Vec` or `String` are.
fn vector(types: &mut Types<'_, '_>, it: &Aggregate, depth: usize) -> Option<(u64, u64)> {
    if depth > DEPTH_MAX {
        return None;
    }
    if let Some(length) = it.members.iter().find(|member| member.name == "len") {
        let buffer = it.members.iter().find(|member| member.name == "buf")?;
        let pointer = pointer_in(types, buffer.ty, 0)?;
        return Some((buffer.offset + pointer, length.offset));
    }
    // A string is a vector, a path is a string of the system, which is one, too.
    let inner = it.members.iter().find(|member| matches!(&*member.name, "vec" | "inner"))?;
    let Kind::Aggregate(vec) = types.get(inner.ty).kind.clone() else { return None };
    let (pointer, length) = vector(types, &vec, depth + 1)?;
    Some((inner.offset + pointer, inner.offset + length))
}

/// The offset of the first pointer within a type.
fn pointer_in(types: &mut Types<'_, '_>, id: TypeId, depth: usize) -> Option<u64> {
    match types.get(id).kind.clone() {
        Kind::Pointer { .. } => Some(0),
        Kind::Aggregate(it) if depth < DEPTH_MAX => it
            .members
            .iter()
            .find_map(|member| Some(member.offset + pointer_in(types, member.ty, depth + 1)?)),
        _ => None,
    }
}

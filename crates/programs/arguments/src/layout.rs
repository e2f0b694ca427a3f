//! How rustc lays values out, and passes them by Rust's own ABI.
//!
//! The rules are those of rustc's layouts (`BackendRepr` in `compiler/rustc_abi`) and of its ABI
//! (`compiler/rustc_ty_utils/src/abi.rs`), from 1.80 on: a scalar and each half of a pair of
//! scalars is an argument of its own; everything else is packed into an integer, or passed by its
//! address where it is larger. Representations (`repr`) aren't described by DWARF: where they make
//! a difference, nothing is known.

use std::rc::Rc;

use crate::passed::{Class, Passed, Scalar};
use crate::types::{Aggregate, Case, Kind, Member, TypeId, Types, Variants};

/// Nested deeper than this, a type isn't looked at.
const DEPTH_MAX: usize = 16;
/// Larger values are in memory: a pair has at most two integers of 128 bits.
const PAIR_MAX: u64 = 32;
/// Larger values are passed by their address, and returned in memory.
const PACKED_MAX: u64 = 8;
/// Versions of rustc return what is larger, up to this, in two registers or in memory.
const RESULT_MAX: u64 = 16;

/// How code has a value: as scalars, or in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Repr {
    Nothing,
    Scalar(Scalar),
    Pair(Scalar, Scalar),
    Memory,
}

/// How Rust's ABI passes a value of a type, or returns it; `None` if that isn't known.
pub(crate) fn passed(types: &mut Types<'_, '_>, id: TypeId, is_result: bool) -> Option<Passed> {
    let size = types.get(id).size;
    Some(match repr(types, id, 0)? {
        Repr::Nothing => Passed::Empty,
        Repr::Scalar(Scalar { size: 16, .. }) => Passed::Classes(vec![Class::Integer; 2]),
        Repr::Scalar(one) => Passed::Scalars(vec![one]),
        Repr::Pair(one, two) if one.size.max(two.size) > 8 => return None,
        Repr::Pair(one, two) => Passed::Scalars(vec![one, two]),
        Repr::Memory if is_result && size > PACKED_MAX && size <= RESULT_MAX => return None,
        Repr::Memory if size > PACKED_MAX => Passed::Reference,
        Repr::Memory => Passed::Classes(vec![Class::Integer]),
    })
}

/// Whether no function with the ABI of C has a value of this type: rustc warns where one has.
pub(crate) fn is_rust_only(types: &mut Types<'_, '_>, id: TypeId) -> bool {
    const OWN: [&str; 8] = [
        "(",
        "alloc::string::String",
        "alloc::vec::Vec<",
        "core::option::Option<",
        "core::result::Result<",
        "core::time::Duration",
        "std::path::PathBuf",
        "std::ffi::os_str::OsString",
    ];
    let ty = types.get(id);
    let is_wide = ty.name.starts_with('&') && ty.size == 16;
    let is_own = is_wide || OWN.iter().any(|own| ty.name.starts_with(own));
    // A pointer that may be null is one of C's types.
    is_own && ty.size > 0 && !matches!(repr(types, id, 0), Some(Repr::Scalar(Scalar { size: 8, .. })))
}

fn repr(types: &mut Types<'_, '_>, id: TypeId, depth: usize) -> Option<Repr> {
    if depth > DEPTH_MAX {
        return None;
    }
    let ty = types.get(id);
    let scalar = |is_float| Some(Repr::Scalar(Scalar { offset: 0, size: ty.size, is_float }));
    match &ty.kind {
        _ if ty.size == 0 => Some(Repr::Nothing),
        Kind::Void => Some(Repr::Nothing),
        Kind::Integer { .. } | Kind::Bool | Kind::Char { .. } | Kind::Enum { .. } | Kind::Pointer { .. } => {
            if matches!(ty.size, 1 | 2 | 4 | 8 | 16) {
                scalar(false)
            } else {
                None
            }
        }
        Kind::Float if matches!(ty.size, 4 | 8) => scalar(true),
        Kind::Aggregate(it) if it.is_incomplete => None,
        // Only integers of 128 bits make a pair that is larger than two words.
        Kind::Aggregate(_) | Kind::Array { .. }
            if ty.size > PAIR_MAX || ty.size > RESULT_MAX && !ty.size.is_multiple_of(16) =>
        {
            Some(Repr::Memory)
        }
        Kind::Array { .. } => Some(Repr::Memory),
        Kind::Aggregate(it) if it.is_union => None,
        Kind::Aggregate(it) => match &it.variants {
            Some(variants) => choice(types, variants, ty.size, depth),
            None => object(types, it, ty.size, depth),
        },
        Kind::Float | Kind::Function | Kind::Other => None,
    }
}

/// Members that have a size.
fn fields(types: &mut Types<'_, '_>, it: &Aggregate) -> Vec<Member> {
    let mut fields: Vec<Member> =
        it.members.iter().filter(|member| types.get(member.ty).size > 0).cloned().collect();
    fields.sort_by_key(|member| member.offset);
    fields
}

/// A struct, of so many bytes.
fn object(types: &mut Types<'_, '_>, it: &Aggregate, size: u64, depth: usize) -> Option<Repr> {
    match &fields(types, it)[..] {
        [one] => {
            let inner = repr(types, one.ty, depth + 1)?;
            if one.offset != 0 || types.get(one.ty).size != size {
                return Some(Repr::Memory);
            }
            match inner {
                // With `repr(C)` it would be packed into an integer.
                Repr::Scalar(Scalar { is_float: true, .. }) => None,
                inner => Some(inner),
            }
        }
        [one, two] => {
            let first = repr(types, one.ty, depth + 1)?;
            let second = repr(types, two.ty, depth + 1)?;
            let (Repr::Scalar(first), Repr::Scalar(second)) = (first, second) else {
                return Some(Repr::Memory);
            };
            Some(pair((first, one.offset), (second, two.offset), size))
        }
        _ => Some(Repr::Memory),
    }
}

/// Two scalars, each with its offset, are a pair where they lie as those of a pair do.
fn pair((first, at): (Scalar, u64), (second, then): (Scalar, u64), size: u64) -> Repr {
    let align = first.size.max(second.size);
    let is_pair = at == 0
        && then == first.size.next_multiple_of(second.size)
        && size == (then + second.size).next_multiple_of(align);
    if !is_pair {
        return Repr::Memory;
    }
    Repr::Pair(Scalar { offset: at, ..first }, Scalar { offset: then, ..second })
}

/// An enum with fields.
fn choice(types: &mut Types<'_, '_>, variants: &Variants, size: u64, depth: usize) -> Option<Repr> {
    let discriminant = variants.discriminant.as_ref()?;
    let of_case = |types: &mut Types<'_, '_>, case: &Case| match &types.get(case.member.ty).kind {
        Kind::Aggregate(it) => Some((fields(types, it), Rc::clone(it))),
        _ => None,
    };
    let mut cases = Vec::new();
    for case in &variants.cases {
        cases.push((case.values.is_empty(), of_case(types, case)?));
    }
    // The discriminant is among the values that a field of one case doesn't have.
    if let Some(at) = cases.iter().position(|(is_rest, _)| *is_rest) {
        let are_others_empty =
            cases.iter().enumerate().all(|(index, (_, (fields, _)))| index == at || fields.is_empty());
        return if are_others_empty {
            object(types, &cases[at].1.1, size, depth)
        } else {
            Some(Repr::Memory)
        };
    }
    let Repr::Scalar(tag) = repr(types, discriminant.ty, depth + 1)? else { return None };
    if discriminant.offset != 0 {
        return Some(Repr::Memory);
    }
    if tag.size == size {
        return Some(Repr::Scalar(tag));
    }
    let mut common: Option<(Scalar, u64)> = None;
    for (_, (fields, _)) in &cases {
        let field = match &fields[..] {
            [] => continue,
            [field] => field,
            _ => return Some(Repr::Memory),
        };
        let Repr::Scalar(scalar) = repr(types, field.ty, depth + 1)? else { return Some(Repr::Memory) };
        let found = (scalar, field.offset);
        if common.is_some_and(|common| common != found) {
            return Some(Repr::Memory);
        }
        common = Some(found);
    }
    Some(common.map_or(Repr::Memory, |common| pair((tag, 0), common, size)))
}

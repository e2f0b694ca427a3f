//! A function's parameters and result, with their places.

use everycall_format::capture::register;

use crate::arch::{self, Places};
use crate::layout;
use crate::place::{self, Located, Piece, Place};
use crate::types::{Kind, TypeId, Types};
use crate::units::{Producer, UnitFacts, Units, is_changed};

/// Parameters that are read.
const PARAMETERS_MAX: usize = 512;
/// Declarations refer to one another over at most this many steps.
const REFERENCES_MAX: usize = 8;

/// A function of a module.
#[derive(Clone, Copy, Debug)]
pub struct FunctionPlace<'a> {
    /// The image address of its first instruction.
    pub address: u64,
    /// Bytes of the site with which it begins, or 0. clang says where parameters are only from
    /// behind XRay's sleds on.
    pub first_site: u64,
    /// Its name in the symbol table, with parts such as `.constprop.0`.
    pub linkage_name: &'a str,
    /// Whether no other object can call it: its symbol is local, and its visibility the default
    /// one (linkers make hidden symbols local, too). `None`: there is no symbol.
    pub is_local: Option<bool>,
}

/// A function as DWARF describes it.
pub(crate) struct Signature {
    pub parameters: Vec<Parameter>,
    pub result: Option<TypeId>,
    pub result_place: Place,
}

pub(crate) struct Parameter {
    pub name: String,
    pub ty: TypeId,
    pub place: Place,
}

/// Reads the function whose first instruction is at `address`; `None` if the unit has none.
pub(crate) fn read(
    types: &mut Types<'_, '_>,
    units: &mut Units,
    function: FunctionPlace<'_>,
) -> Option<Signature> {
    let (address, linkage_name) = (function.address, function.linkage_name);
    let unit = types.unit();
    let dwarf = types.dwarf();
    let facts = units.facts(dwarf, &unit);
    let UnitFacts { is_rust, producer, is_optimised, .. } = *facts;
    if !facts.describes_parameters {
        return None;
    }
    let entry = facts.function_at(&unit, address)?;
    let id = Types::first(entry.offset());
    let chain = declarations(types, id);
    let result = chain.iter().find_map(|entry| types.type_of(*entry));
    let is_external = match function.is_local {
        Some(is_local) => !is_local,
        None => chain
            .iter()
            .filter_map(|id| types.entry(*id))
            .any(|(_, entry)| entry.attr(gimli::DW_AT_external).is_some()),
    };
    let frame_base = entry.attr_value(gimli::DW_AT_frame_base);
    // The parameters of the function itself; of its abstract description those that it hasn't.
    let mut found: Vec<(TypeId, Vec<TypeId>)> = Vec::new();
    let is_instance = entry.attr(gimli::DW_AT_abstract_origin).is_some();
    for declared in chain.iter().take(1 + usize::from(is_instance)) {
        for parameter in types.children(*declared, gimli::DW_TAG_formal_parameter) {
            let is_known = found.iter().any(|(_, origins)| origins.contains(&parameter));
            if !is_known && found.len() < PARAMETERS_MAX {
                let origins = declarations(types, parameter);
                found.push((parameter, origins));
            }
        }
    }
    let mut raw = Vec::new();
    for (parameter, origins) in found {
        let name = origins.iter().find_map(|entry| types.name_of(*entry)).unwrap_or_default();
        let Some(ty) = origins.iter().find_map(|entry| types.type_of(*entry)) else { continue };
        let Some((unit, parameter)) = types.entry(parameter) else { continue };
        let located = if let Some(value) = parameter.attr_value(gimli::DW_AT_const_value) {
            match value.udata_value().or_else(|| value.sdata_value().map(|value| value as u64)) {
                Some(value) => Located::Exactly(Place::Constant(value)),
                None => Located::Nowhere,
            }
        } else {
            match parameter.attr_value(gimli::DW_AT_location) {
                Some(value) => place::located(dwarf, &unit, value, address + function.first_site, frame_base),
                None => Located::Nowhere,
            }
        };
        raw.push((name, ty, located));
    }
    let is_clone = is_changed(&entry)
        || [".constprop", ".isra", ".part", ".cold", ".llvm."].iter().any(|part| linkage_name.contains(part));
    let is_gcc = producer == Producer::Gcc;
    let mut by_abi = Places::new(types, result, is_rust, is_gcc);
    let is_rust_only =
        is_rust && (raw.iter().map(|(_, ty, _)| *ty).chain(result)).any(|ty| layout::is_rust_only(types, ty));
    if is_rust_only {
        by_abi.is_rust_only();
    }
    if is_rust {
        for (_, ty, located) in &raw {
            match located {
                Located::Later(_) => by_abi.is_by_address(types, *ty),
                Located::Frame(false) if !is_optimised => by_abi.is_in_frame(types, *ty),
                _ => {}
            }
        }
    }
    // LLVM removes parameters of functions whose calls it all knows, in place. Later versions say
    // so.
    let needs = match producer {
        _ if is_clone => Needs::More,
        _ if is_external => Needs::Nothing,
        Producer::LlvmThatTells => Needs::PlacesOfPointers,
        Producer::Other if is_optimised => Needs::More,
        _ => Needs::AllPlaces,
    };
    let parameters = places(types, raw, &mut by_abi, needs);
    // It leaves results as they are that are constant or unused.
    let is_result_kept = !is_clone && (is_external || !is_optimised);
    let result_place = match result {
        Some(result) if is_result_kept => arch::result(types, result, is_rust, is_rust_only),
        _ => Place::Unknown,
    };
    Some(Signature { parameters, result, result_place })
}

/// The parameters of which DWARF must name a place, for the ABI's places to be trusted. The places
/// that it names must agree.
#[derive(Clone, Copy, PartialEq)]
enum Needs {
    Nothing,
    /// A place of each parameter that may be passed by its address: LLVM may pass what is there,
    /// without telling.
    PlacesOfPointers,
    /// A place of each parameter: then none was removed.
    AllPlaces,
    /// Nothing would be enough.
    More,
}

/// Joins what DWARF says with what the ABI says.
fn places(
    types: &mut Types<'_, '_>,
    raw: Vec<(String, TypeId, Located)>,
    assignment: &mut Places,
    needs: Needs,
) -> Vec<Parameter> {
    let by_abi: Vec<Place> = raw
        .iter()
        .map(|(_, ty, located)| match located {
            // A compiler that says that a class is passed by its address knows it.
            Located::Frame(true) | Located::Later(_) | Located::Exactly(Place::Indirect { .. }) => {
                assignment.next_reference()
            }
            Located::Exactly(Place::Memory { register, .. }) if *register != register::STACK_POINTER => {
                assignment.next_reference()
            }
            _ => assignment.next(types, *ty),
        })
        .collect();
    let mut is_number = |ty| {
        matches!(
            types.get(ty).kind,
            Kind::Integer { .. } | Kind::Bool | Kind::Char { .. } | Kind::Float | Kind::Enum { .. }
        )
    };
    let is_there = raw.iter().all(|(_, ty, located)| match needs {
        Needs::Nothing => true,
        Needs::PlacesOfPointers => *located != Located::Nowhere || is_number(*ty),
        Needs::AllPlaces => *located != Located::Nowhere,
        Needs::More => false,
    });
    let agrees = raw.iter().zip(&by_abi).all(|((_, _, located), abi)| agrees(located, abi));
    let is_trusted = is_there && agrees;
    raw.into_iter()
        .zip(by_abi)
        .map(|((name, ty, located), abi)| {
            let size = types.get(ty).size;
            let place = match located {
                Located::Nowhere => Place::Unknown,
                Located::Exactly(place) => place,
                Located::Frame(_) | Located::Later(_) if is_trusted => abi,
                Located::Frame(_) | Located::Later(_) => Place::Unknown,
                Located::Parts(parts) => joined(&parts, size, if is_trusted { Some(&abi) } else { None }),
            };
            let place = if matches!(types.get(ty).kind, Kind::Void) { Place::Unknown } else { place };
            Parameter { name, ty, place }
        })
        .collect()
}

/// Whether a location can be that of a value which the ABI puts at a place.
fn agrees(located: &Located, abi: &Place) -> bool {
    match (located, abi) {
        (Located::Exactly(Place::Constant(_)), _) => false,
        (_, Place::Unknown) => true,
        (Located::Exactly(place), abi) => place == abi,
        (Located::Later(register), abi) => *abi == Place::Memory { register: *register, offset: 0 },
        (Located::Parts(parts), Place::Registers(pieces)) => parts.iter().all(|(offset, _, register)| {
            register.is_none_or(|register| {
                pieces.iter().any(|piece| piece.register == register && piece.offset / 8 == offset / 8)
            })
        }),
        (Located::Parts(parts), _) => parts.iter().all(|(_, _, register)| register.is_none()),
        _ => true,
    }
}

/// The place of a value of which DWARF names parts.
fn joined(parts: &[(u64, u64, Option<u32>)], size: u64, abi: Option<&Place>) -> Place {
    let is_alive = |from: u64, to: u64| {
        parts.iter().any(|&(offset, length, _)| {
            let end = if length == 0 { size } else { offset + length };
            offset < to && from < end
        })
    };
    match abi {
        // Of a value in several registers, the compiler may have dropped one.
        Some(Place::Registers(pieces))
            if pieces.iter().all(|piece| is_alive(piece.offset, piece.offset + piece.size)) =>
        {
            return Place::Registers(pieces.clone());
        }
        Some(place @ (Place::Memory { .. } | Place::Indirect { .. })) if is_alive(0, size) => {
            return place.clone();
        }
        _ => {}
    }
    let mut pieces = Vec::new();
    let mut covered = 0;
    for (offset, length, register) in parts {
        let length = if *length == 0 { size } else { *length };
        let Some(register) = register else { return Place::Unknown };
        if *offset != covered || length > 8 {
            return Place::Unknown;
        }
        pieces.push(Piece { register: *register, offset: *offset, size: length });
        covered += length;
    }
    if covered >= size && size > 0 { Place::Registers(pieces) } else { Place::Unknown }
}

/// An entry, and those that it is an instance or a definition of.
fn declarations(types: &mut Types<'_, '_>, id: TypeId) -> Vec<TypeId> {
    let mut all = vec![id];
    while let (Some(last), true) = (all.last(), all.len() < REFERENCES_MAX) {
        match types.origin(*last) {
            Some(next) => all.push(next),
            None => break,
        }
    }
    all
}

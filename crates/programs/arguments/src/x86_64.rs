//! Where the ABIs of x86-64 put parameters and results.

use everycall_format::arch::TO_ARGUMENTS;
use everycall_format::capture::register;

use crate::layout;
use crate::passed::{Class, Passed, Scalar};
use crate::place::{Piece, Place};
use crate::types::{Kind, Type, TypeId, Types};

/// General registers of the first six integer arguments, in DWARF's numbers: rdi, rsi, rdx, rcx,
/// r8, r9.
pub(crate) const INTEGERS: [u32; 6] = [5, 4, 1, 2, 8, 9];
/// The registers of the first eight floating-point arguments.
pub(crate) const VECTORS: u32 = 8;
const RAX: u32 = 0;
const RDX: u32 = 1;
/// Nested deeper than this, a type isn't classified.
const DEPTH_MAX: usize = 16;

/// Assigns places to the parameters of one function, in order. Rust's functions may have its own
/// ABI or the system's. Where a parameter doesn't show which, only what is the same in both is a
/// place.
pub(crate) struct Places {
    system: Option<Assignment>,
    rust: Option<Assignment>,
}

impl Places {
    /// `result`: the type that the function returns.
    pub(crate) fn new(
        types: &mut Types<'_, '_>,
        result: Option<TypeId>,
        is_rust: bool,
        is_gcc: bool,
    ) -> Self {
        let system = Assignment::new(types, result, false, is_gcc);
        let rust = is_rust.then(|| Assignment::new(types, result, true, false));
        Self { system: Some(system), rust }
    }

    /// A parameter or result has a type that only Rust has.
    pub(crate) fn is_rust_only(&mut self) {
        self.system = self.system.take_if(|_| self.rust.is_none());
    }

    /// A parameter of this type is passed by its address: C passes large ones on the stack.
    pub(crate) fn is_by_address(&mut self, types: &mut Types<'_, '_>, ty: TypeId) {
        if matches!(classify(types, ty), Some(Passed::Memory(_))) && self.rust.is_some() {
            self.system = None;
        }
    }

    /// A parameter of this type, in code without optimisation, isn't passed by its address.
    pub(crate) fn is_in_frame(&mut self, types: &mut Types<'_, '_>, ty: TypeId) {
        if layout::passed(types, ty, false) == Some(Passed::Reference) && self.system.is_some() {
            self.rust = None;
        }
    }

    /// The next parameter's place.
    pub(crate) fn next(&mut self, types: &mut Types<'_, '_>, ty: TypeId) -> Place {
        let system = self.system.as_mut().map(|system| system.next(types, ty));
        let rust = self.rust.as_mut().map(|rust| rust.next(types, ty));
        both(system, rust)
    }

    /// The next parameter's place, if its address is passed.
    pub(crate) fn next_reference(&mut self) -> Place {
        let system = self.system.as_mut().map(Assignment::next_reference);
        let rust = self.rust.as_mut().map(Assignment::next_reference);
        both(system, rust)
    }
}

fn both(system: Option<Place>, rust: Option<Place>) -> Place {
    match (system, rust) {
        (Some(system), Some(rust)) if system == rust => system,
        (Some(one), None) | (None, Some(one)) => one,
        _ => Place::Unknown,
    }
}

/// The places that one ABI assigns.
struct Assignment {
    integers: usize,
    vectors: u32,
    stack: i64,
    /// How a parameter was passed isn't known, so that of the next ones isn't, either.
    is_lost: bool,
    is_rust: bool,
    is_gcc: bool,
}

impl Assignment {
    fn new(types: &mut Types<'_, '_>, result: Option<TypeId>, is_rust: bool, is_gcc: bool) -> Self {
        let mut assignment =
            Self { integers: 0, vectors: 0, stack: TO_ARGUMENTS, is_lost: false, is_rust, is_gcc };
        if let Some(result) = result {
            let passed = if is_rust { layout::passed(types, result, true) } else { classify(types, result) };
            match passed {
                // On the stack as an argument, in st0 as a result.
                Some(Passed::Memory(_)) if is_long_double(&types.get(result)) => {}
                Some(Passed::Memory(_) | Passed::Reference) => assignment.integers = 1,
                Some(_) => {}
                None => assignment.is_lost = true,
            }
        }
        assignment
    }

    fn next(&mut self, types: &mut Types<'_, '_>, ty: TypeId) -> Place {
        let size = types.get(ty).size;
        let passed = if self.is_rust { layout::passed(types, ty, false) } else { classify(types, ty) };
        let is_wide = size == 16 && matches!(types.get(ty).kind, Kind::Integer { .. });
        self.place(passed, size, is_wide)
    }

    fn next_reference(&mut self) -> Place {
        self.place(Some(Passed::Reference), 8, false)
    }

    /// `is_wide`: it is an integer of 128 bits.
    fn place(&mut self, passed: Option<Passed>, size: u64, is_wide: bool) -> Place {
        if self.is_lost {
            return Place::Unknown;
        }
        match passed {
            None => {
                self.is_lost = true;
                Place::Unknown
            }
            Some(Passed::Empty) => Place::Registers(Vec::new()),
            Some(Passed::Memory(align)) => self.stacked(size, align),
            Some(Passed::Reference) => match INTEGERS.get(self.integers) {
                Some(register) => {
                    self.integers += 1;
                    Place::Memory { register: *register, offset: 0 }
                }
                None => match self.stacked(8, 8) {
                    Place::Memory { register, offset } => Place::Indirect { register, offset },
                    other => other,
                },
            },
            Some(Passed::Scalars(scalars)) => {
                let pieces: Option<Vec<_>> = scalars.iter().map(|scalar| self.scalar(*scalar)).collect();
                match (pieces, &scalars[..]) {
                    (Some(pieces), _) => Place::Registers(pieces),
                    (None, [_]) => self.stacked(size, 8),
                    (None, _) => {
                        self.is_lost = true;
                        Place::Unknown
                    }
                }
            }
            Some(Passed::Classes(classes)) => {
                let count = |class| classes.iter().filter(|found| **found == class).count();
                let (integers, vectors) = (count(Class::Integer), count(Class::Vector) as u32);
                // They are passed as a whole.
                let is_whole =
                    self.integers + integers <= INTEGERS.len() && self.vectors + vectors <= VECTORS;
                if !is_whole {
                    if self.is_rust && classes.len() > 1 {
                        self.is_lost = true;
                        return Place::Unknown;
                    }
                    return self.stacked_words(size, integers == 2 && is_wide);
                }
                let mut pieces = Vec::new();
                for (index, class) in classes.iter().enumerate() {
                    let register = match class {
                        Class::Nothing => continue,
                        Class::Integer => {
                            self.integers += 1;
                            INTEGERS[self.integers - 1]
                        }
                        Class::Vector => {
                            self.vectors += 1;
                            register::VECTOR + self.vectors - 1
                        }
                    };
                    let offset = 8 * index as u64;
                    pieces.push(Piece { register, offset, size: size.saturating_sub(offset).min(8) });
                }
                Place::Registers(pieces)
            }
        }
    }

    /// The register of a scalar, if there is one left.
    fn scalar(&mut self, Scalar { offset, size, is_float }: Scalar) -> Option<Piece> {
        let register = if is_float {
            if self.vectors == VECTORS {
                return None;
            }
            self.vectors += 1;
            register::VECTOR + self.vectors - 1
        } else {
            let register = *INTEGERS.get(self.integers)?;
            self.integers += 1;
            register
        };
        Some(Piece { register, offset, size })
    }

    /// Parts that would be in registers, if there were enough.
    fn stacked_words(&mut self, size: u64, is_wide: bool) -> Place {
        if !is_wide {
            return self.stacked(size, 8);
        }
        // gcc aligns it, and leaves the last register to the next argument. LLVM does neither in
        // some versions.
        if !self.is_gcc {
            self.is_lost = true;
            return Place::Unknown;
        }
        self.stacked(size, 16)
    }

    fn stacked(&mut self, size: u64, align: u64) -> Place {
        // Arguments are aligned from the first one on, which lies behind the return address.
        let align = align.max(8) as i64;
        let from_first = self.stack - TO_ARGUMENTS;
        let offset = (from_first + align - 1) / align * align + TO_ARGUMENTS;
        self.stack = offset.saturating_add_unsigned(size.div_ceil(8) * 8);
        Place::Memory { register: register::STACK_POINTER, offset }
    }
}

/// Where a function's result is at its exit. `is_rust`: it may have Rust's ABI; `is_rust_only`: it
/// has.
pub(crate) fn result(types: &mut Types<'_, '_>, ty: TypeId, is_rust: bool, is_rust_only: bool) -> Place {
    let system = (!is_rust_only).then(|| result_by(types, ty, false));
    let rust = is_rust.then(|| result_by(types, ty, true));
    both(system, rust)
}

fn result_by(types: &mut Types<'_, '_>, ty: TypeId, is_rust: bool) -> Place {
    let size = types.get(ty).size;
    let passed = if is_rust { layout::passed(types, ty, true) } else { classify(types, ty) };
    match passed {
        None => Place::Unknown,
        Some(Passed::Empty) => Place::Registers(Vec::new()),
        Some(Passed::Memory(_)) if is_long_double(&types.get(ty)) => Place::Registers(vec![
            Piece { register: register::FLOATING, offset: 0, size: 8 },
            Piece { register: register::FLOATING + 1, offset: 8, size: 2 },
        ]),
        Some(Passed::Memory(_) | Passed::Reference) => Place::Memory { register: RAX, offset: 0 },
        Some(Passed::Scalars(scalars)) => returned(scalars.into_iter()),
        Some(Passed::Classes(classes)) => {
            let parts = classes.iter().enumerate().filter(|(_, class)| **class != Class::Nothing);
            returned(parts.map(|(index, class)| {
                let offset = 8 * index as u64;
                let size = size.saturating_sub(offset).min(8);
                Scalar { offset, size, is_float: *class == Class::Vector }
            }))
        }
    }
}

/// The registers of a result's parts.
fn returned(parts: impl Iterator<Item = Scalar>) -> Place {
    let (mut integers, mut vectors) = ([RAX, RDX].into_iter(), register::VECTOR..register::VECTOR + 2);
    let piece = |Scalar { offset, size, is_float }| {
        let register = if is_float { vectors.next() } else { integers.next() };
        register.map(|register| Piece { register, offset, size })
    };
    parts.map(piece).collect::<Option<_>>().map_or(Place::Unknown, Place::Registers)
}

fn is_long_double(ty: &Type) -> bool {
    matches!(ty.kind, Kind::Float) && ty.size == 16
}

/// System V. `None`: it isn't known.
fn classify(types: &mut Types<'_, '_>, id: TypeId) -> Option<Passed> {
    let ty = types.get(id);
    match &ty.kind {
        Kind::Void => return Some(Passed::Empty),
        Kind::Float if ty.size == 16 => {
            // long double; __float128 has the same size, and is passed in a vector register.
            return if ty.name == "long double" { Some(Passed::Memory(16)) } else { None };
        }
        Kind::Integer { .. } if ty.size == 16 => {
            return Some(Passed::Classes(vec![Class::Integer; 2]));
        }
        Kind::Aggregate(it) if it.is_incomplete => return None,
        Kind::Aggregate(it) if it.is_by_reference => return Some(Passed::Reference),
        Kind::Aggregate(it) if it.members.is_empty() && ty.size == 1 => {
            // An empty class of C++; in C, its size is zero.
            return Some(Passed::Empty);
        }
        Kind::Aggregate(_) if ty.size == 0 => return Some(Passed::Empty),
        Kind::Other => return None,
        _ => {}
    }
    if ty.size > 16 {
        return Some(Passed::Memory(align_of(types, id, 0)));
    }
    let mut classes = vec![Class::Nothing; ty.size.div_ceil(8) as usize];
    match merge(types, id, 0, &mut classes, 0)? {
        Merged::Fits => {
            if classes.iter().all(|class| *class == Class::Nothing) {
                return Some(Passed::Empty);
            }
            // Padding alone is passed in a vector register.
            let classes = classes
                .into_iter()
                .map(|class| if class == Class::Nothing { Class::Vector } else { class })
                .collect();
            Some(Passed::Classes(classes))
        }
        Merged::Memory => Some(Passed::Memory(align_of(types, id, 0))),
        Merged::Floating => None,
    }
}

enum Merged {
    Fits,
    Memory,
    Floating,
}

/// Merges the classes of a type's parts.
fn merge(
    types: &mut Types<'_, '_>,
    id: TypeId,
    offset: u64,
    classes: &mut [Class],
    depth: usize,
) -> Option<Merged> {
    if depth > DEPTH_MAX {
        return None;
    }
    let ty = types.get(id);
    let class = match &ty.kind {
        Kind::Integer { .. } | Kind::Bool | Kind::Char { .. } | Kind::Enum { .. } | Kind::Pointer { .. } => {
            Class::Integer
        }
        Kind::Float if ty.size == 16 => return Some(Merged::Floating),
        Kind::Float => Class::Vector,
        Kind::Void => return Some(Merged::Fits),
        Kind::Function => return None,
        Kind::Other if ty.size == 0 || ty.size > 16 => return None,
        // A pointer to a member; others aren't known well enough.
        Kind::Other if ty.name.is_empty() => Class::Integer,
        Kind::Other => return None,
        Kind::Array { element, count } => {
            let size = types.get(*element).size;
            for index in 0..count.unwrap_or(0).min(16) {
                match merge(types, *element, offset + index * size, classes, depth + 1)? {
                    Merged::Fits => {}
                    other => return Some(other),
                }
            }
            return Some(Merged::Fits);
        }
        Kind::Aggregate(it) => {
            if it.is_incomplete || it.variants.is_some() {
                return None;
            }
            for member in &it.members {
                let inner = types.get(member.ty);
                if let Some((first, size)) = member.bits {
                    let (begin, end) = (offset * 8 + member.offset * 8 + first, size);
                    if size == 0 {
                        continue;
                    }
                    for part in begin / 64..=(begin + end - 1) / 64 {
                        *classes.get_mut(part as usize)? = Class::Integer;
                    }
                    continue;
                }
                if inner.size == 0 && matches!(inner.kind, Kind::Array { .. }) {
                    continue;
                }
                let align = align_of(types, member.ty, depth + 1);
                if align > 0 && !(offset + member.offset).is_multiple_of(align) {
                    return Some(Merged::Memory);
                }
                match merge(types, member.ty, offset + member.offset, classes, depth + 1)? {
                    Merged::Fits => {}
                    other => return Some(other),
                }
            }
            return Some(Merged::Fits);
        }
    };
    for part in offset / 8..(offset + ty.size).div_ceil(8) {
        let known = classes.get_mut(part as usize)?;
        *known = match (*known, class) {
            (Class::Nothing, class) => class,
            (Class::Vector, Class::Vector) => Class::Vector,
            _ => Class::Integer,
        };
    }
    Some(Merged::Fits)
}

/// A type's alignment, as its members have it.
fn align_of(types: &mut Types<'_, '_>, id: TypeId, depth: usize) -> u64 {
    if depth > DEPTH_MAX {
        return 1;
    }
    let ty = types.get(id);
    match &ty.kind {
        Kind::Aggregate(it) => {
            let members = it.members.clone();
            members
                .iter()
                .filter(|member| member.bits.is_none())
                .map(|member| align_of(types, member.ty, depth + 1))
                .max()
                .unwrap_or(1)
        }
        Kind::Array { element, .. } => align_of(types, *element, depth + 1),
        Kind::Float if ty.size == 16 => 16,
        _ => ty.size.clamp(1, 16),
    }
}

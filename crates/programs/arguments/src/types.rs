//! Types as DWARF has them, read when they are needed.

use std::collections::HashMap;
use std::rc::Rc;

use everycall_symbols::DwarfSlice;
use gimli::{AttributeValue, DebuggingInformationEntry, Dwarf, Unit, UnitOffset};

/// Types refer to one another over at most this many steps.
const DEPTH_MAX: usize = 24;
/// Members and enumerators of one type that are read.
const MEMBERS_MAX: usize = 4096;

type Slice<'a> = DwarfSlice<'a>;
pub(crate) type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;

/// An entry, mostly a type's: which of the table's units, and the offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TypeId {
    unit: u32,
    offset: usize,
}

/// A type without its qualifiers and typedefs.
#[derive(Clone, Debug)]
pub(crate) struct Type {
    /// With namespaces and template arguments, as far as DWARF has them.
    pub name: String,
    pub size: u64,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Void,
    Integer {
        is_signed: bool,
    },
    Bool,
    /// A character of C (one byte, or a wide one), or Rust's.
    Char {
        is_signed: bool,
    },
    Float,
    Enum {
        is_signed: bool,
        values: Vec<(String, i128)>,
    },
    Pointer {
        to: Option<TypeId>,
        is_reference: bool,
    },
    Function,
    Array {
        element: TypeId,
        count: Option<u64>,
    },
    Aggregate(Rc<Aggregate>),
    /// A vector for SIMD instructions, a complex number, a decimal one.
    Other,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Aggregate {
    pub members: Vec<Member>,
    /// Rust's enums.
    pub variants: Option<Variants>,
    /// The types among the template's arguments.
    pub arguments: Vec<TypeId>,
    pub is_union: bool,
    /// Only declared: nothing is known of the members.
    pub is_incomplete: bool,
    /// C++ passes it by a hidden reference.
    pub is_by_reference: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Empty for bases and for members without a name.
    pub name: String,
    pub ty: TypeId,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// For bit fields: the first bit, counted from `offset`, and how many.
    pub bits: Option<(u64, u64)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Variants {
    pub discriminant: Option<Member>,
    pub cases: Vec<Case>,
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub name: String,
    /// Values of the discriminant; empty for all that no other case has.
    pub values: Vec<u64>,
    /// The struct with the case's fields.
    pub member: Member,
}

/// Types of one file's units.
pub(crate) struct Types<'d, 'a> {
    dwarf: &'d Dwarf<Slice<'a>>,
    units: Vec<Rc<Unit<Slice<'a>>>>,
    /// By unit and offset: the entry around it.
    parents: HashMap<u32, HashMap<usize, usize>>,
    known: HashMap<TypeId, Rc<Type>>,
    by_signature: HashMap<u64, Option<TypeId>>,
    void: Rc<Type>,
}

impl<'d, 'a> Types<'d, 'a> {
    pub(crate) fn new(dwarf: &'d Dwarf<Slice<'a>>, unit: Rc<Unit<Slice<'a>>>) -> Self {
        let void = Rc::new(Type { name: "void".to_owned(), size: 0, kind: Kind::Void });
        Self {
            dwarf,
            units: vec![unit],
            parents: HashMap::new(),
            known: HashMap::new(),
            by_signature: HashMap::new(),
            void,
        }
    }

    pub(crate) fn dwarf(&self) -> &'d Dwarf<Slice<'a>> {
        self.dwarf
    }

    /// The unit that the types began with.
    pub(crate) fn unit(&self) -> Rc<Unit<Slice<'a>>> {
        self.units[0].clone()
    }

    /// A type by its id.
    pub(crate) fn get(&mut self, id: TypeId) -> Rc<Type> {
        self.read(id, 0)
    }

    /// The unit and the entry of an id.
    pub(crate) fn entry(&self, id: TypeId) -> Option<(Rc<Unit<Slice<'a>>>, Entry<'a>)> {
        let unit = self.units.get(id.unit as usize)?.clone();
        let entry = unit.entry(UnitOffset(id.offset)).ok()?;
        Some((unit, entry))
    }

    /// The entry of which another one is an instance or a definition.
    pub(crate) fn origin(&mut self, id: TypeId) -> Option<TypeId> {
        let (_, entry) = self.entry(id)?;
        let value = entry
            .attr_value(gimli::DW_AT_abstract_origin)
            .or_else(|| entry.attr_value(gimli::DW_AT_specification))?;
        self.reference(id.unit, value)
    }

    /// The type of an entry; `None` for `void`.
    pub(crate) fn type_of(&mut self, id: TypeId) -> Option<TypeId> {
        let (_, entry) = self.entry(id)?;
        self.type_in(id.unit, &entry)
    }

    /// The name of an entry.
    pub(crate) fn name_of(&self, id: TypeId) -> Option<String> {
        let (_, entry) = self.entry(id)?;
        self.name(id.unit, &entry)
    }

    /// The id of an entry of the unit that the types began with.
    pub(crate) fn first(offset: UnitOffset) -> TypeId {
        TypeId { unit: 0, offset: offset.0 }
    }

    /// Entries of a tag below an entry.
    pub(crate) fn children(&self, id: TypeId, tag: gimli::DwTag) -> Vec<TypeId> {
        let mut found = Vec::new();
        let Some((unit, entry)) = self.entry(id) else { return found };
        let Ok(mut tree) = unit.entries_tree(Some(entry.offset())) else { return found };
        let Ok(root) = tree.root() else { return found };
        let mut children = root.children();
        while let Ok(Some(child)) = children.next() {
            if child.entry().tag() == tag {
                found.push(TypeId { unit: id.unit, offset: child.entry().offset().0 });
            }
        }
        found
    }

    fn type_in(&mut self, unit: u32, entry: &Entry<'a>) -> Option<TypeId> {
        let value = entry.attr_value(gimli::DW_AT_type)?;
        self.reference(unit, value)
    }

    /// The entry that an attribute refers to.
    fn reference(&mut self, unit: u32, value: AttributeValue<Slice<'a>>) -> Option<TypeId> {
        match value {
            AttributeValue::UnitRef(offset) => Some(TypeId { unit, offset: offset.0 }),
            AttributeValue::DebugInfoRef(offset) => {
                let within = |unit: &Unit<Slice<'a>>| offset.to_unit_offset(&unit.header);
                for (index, unit) in self.units.iter().enumerate() {
                    if let Some(inside) = within(unit) {
                        return Some(TypeId { unit: index as u32, offset: inside.0 });
                    }
                }
                let mut headers = self.dwarf.units();
                while let Ok(Some(header)) = headers.next() {
                    if let Some(inside) = offset.to_unit_offset(&header) {
                        let index = self.add_unit(self.dwarf.unit(header).ok()?);
                        return Some(TypeId { unit: index, offset: inside.0 });
                    }
                }
                None
            }
            AttributeValue::DebugTypesRef(signature) => {
                if let Some(known) = self.by_signature.get(&signature.0) {
                    return *known;
                }
                let found = self.of_signature(signature);
                self.by_signature.insert(signature.0, found);
                found
            }
            _ => None,
        }
    }

    /// The type in a unit of its own with this signature.
    fn of_signature(&mut self, signature: gimli::DebugTypeSignature) -> Option<TypeId> {
        let find = |header: gimli::UnitHeader<Slice<'a>>| match header.type_() {
            gimli::UnitType::Type { type_signature, type_offset }
            | gimli::UnitType::SplitType { type_signature, type_offset }
                if type_signature == signature =>
            {
                Some((self.dwarf.unit(header).ok()?, type_offset))
            }
            _ => None,
        };
        let mut found = None;
        let mut headers = self.dwarf.units();
        while let (None, Ok(Some(header))) = (&found, headers.next()) {
            found = find(header);
        }
        let mut headers = self.dwarf.type_units();
        while let (None, Ok(Some(header))) = (&found, headers.next()) {
            found = find(header);
        }
        let (unit, offset) = found?;
        let index = self.add_unit(unit);
        Some(TypeId { unit: index, offset: offset.0 })
    }

    fn add_unit(&mut self, unit: Unit<Slice<'a>>) -> u32 {
        self.units.push(Rc::new(unit));
        self.units.len() as u32 - 1
    }

    /// An entry's name.
    fn name(&self, unit: u32, entry: &Entry<'a>) -> Option<String> {
        let value = entry.attr_value(gimli::DW_AT_name)?;
        let unit = self.units.get(unit as usize)?;
        let text = self.dwarf.attr_string(unit, value).ok()?;
        Some(String::from_utf8_lossy(text.slice()).into_owned())
    }

    fn read(&mut self, id: TypeId, depth: usize) -> Rc<Type> {
        if let Some(known) = self.known.get(&id) {
            return known.clone();
        }
        let read = if depth > DEPTH_MAX { None } else { self.read_entry(id, depth) };
        let found =
            read.unwrap_or_else(|| Rc::new(Type { name: "?".to_owned(), size: 0, kind: Kind::Other }));
        self.known.insert(id, found.clone());
        found
    }

    fn read_entry(&mut self, id: TypeId, depth: usize) -> Option<Rc<Type>> {
        let unit = self.units.get(id.unit as usize)?.clone();
        let entry = unit.entry(UnitOffset(id.offset)).ok()?;
        // The type itself is in a unit of its own.
        if let Some(signature) = entry.attr_value(gimli::DW_AT_signature)
            && let Some(whole) = self.reference(id.unit, signature)
        {
            return Some(self.read(whole, depth + 1));
        }
        let size = unsigned(&entry, gimli::DW_AT_byte_size);
        let name = self.name(id.unit, &entry);
        let to = self.type_in(id.unit, &entry);
        let tag = entry.tag();
        match tag {
            gimli::DW_TAG_typedef
            | gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type
            | gimli::DW_TAG_immutable_type
            | gimli::DW_TAG_subrange_type
            | gimli::DW_TAG_template_alias => {
                let Some(to) = to else { return Some(self.void.clone()) };
                let inner = self.read(to, depth + 1);
                // The typedef's name is that of an aggregate without one.
                if inner.name.is_empty()
                    && let Some(name) = name
                {
                    return Some(Rc::new(Type { name, ..(*inner).clone() }));
                }
                return Some(inner);
            }
            _ => {}
        }
        let kind = match tag {
            gimli::DW_TAG_base_type => base_kind(&entry, name.as_deref().unwrap_or_default()),
            gimli::DW_TAG_enumeration_type => self.enumeration(id.unit, &unit, &entry, to, depth)?,
            gimli::DW_TAG_pointer_type => Kind::Pointer { to, is_reference: false },
            gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type => {
                Kind::Pointer { to, is_reference: true }
            }
            gimli::DW_TAG_subroutine_type => Kind::Function,
            gimli::DW_TAG_unspecified_type => match name.as_deref() {
                Some("decltype(nullptr)" | "nullptr_t") => Kind::Pointer { to: None, is_reference: false },
                _ => Kind::Void,
            },
            gimli::DW_TAG_ptr_to_member_type => Kind::Other,
            gimli::DW_TAG_array_type => self.array(id.unit, &unit, &entry, to?)?,
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                Kind::Aggregate(Rc::new(self.aggregate(id, &unit, &entry, depth)?))
            }
            _ => Kind::Other,
        };
        let size = match (&kind, size) {
            (_, Some(size)) => size,
            (Kind::Pointer { .. }, None) => 8,
            (Kind::Array { element, count }, None) => {
                self.read(*element, depth + 1).size.saturating_mul(count.unwrap_or(0))
            }
            (Kind::Enum { .. }, None) => to.map_or(0, |to| self.read(to, depth + 1).size),
            (Kind::Other, None) if tag == gimli::DW_TAG_ptr_to_member_type => {
                let is_function =
                    to.is_some_and(|to| matches!(self.read(to, depth + 1).kind, Kind::Function));
                if is_function { 16 } else { 8 }
            }
            _ => 0,
        };
        let name = match (&kind, name) {
            (Kind::Aggregate(_) | Kind::Enum { .. }, Some(name)) => self.qualified(id, &name),
            (_, name) => name.unwrap_or_default(),
        };
        Some(Rc::new(Type { name, size, kind }))
    }

    fn enumeration(
        &mut self,
        index: u32,
        unit: &Unit<Slice<'a>>,
        entry: &Entry<'a>,
        to: Option<TypeId>,
        depth: usize,
    ) -> Option<Kind> {
        let underlying = to.map(|to| self.read(to, depth + 1));
        let mut values = Vec::new();
        let mut tree = unit.entries_tree(Some(entry.offset())).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(child)) = children.next() {
            let child = child.entry();
            if child.tag() != gimli::DW_TAG_enumerator || values.len() >= MEMBERS_MAX {
                continue;
            }
            let Some(value) = child.attr_value(gimli::DW_AT_const_value) else { continue };
            // Numbers of a fixed size are written by gcc where the value isn't negative.
            let value = match value {
                AttributeValue::Sdata(value) => i128::from(value),
                AttributeValue::Data8(value) if underlying.as_ref().is_some_and(|it| is_signed(it)) => {
                    i128::from(value as i64)
                }
                other => other.udata_value().map(i128::from).or(other.sdata_value().map(i128::from))?,
            };
            values.push((self.name(index, child).unwrap_or_default(), value));
        }
        let is_signed = match &underlying {
            Some(underlying) => is_signed(underlying),
            None => values.iter().any(|(_, value)| *value < 0),
        };
        Some(Kind::Enum { is_signed, values })
    }

    fn array(
        &mut self,
        index: u32,
        unit: &Unit<Slice<'a>>,
        entry: &Entry<'a>,
        element: TypeId,
    ) -> Option<Kind> {
        if entry.attr(gimli::DW_AT_GNU_vector).is_some() {
            return Some(Kind::Other);
        }
        let _ = index;
        let mut counts = Vec::new();
        let mut tree = unit.entries_tree(Some(entry.offset())).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(child)) = children.next() {
            let child = child.entry();
            if child.tag() == gimli::DW_TAG_subrange_type {
                let upper = unsigned(child, gimli::DW_AT_upper_bound).map(|upper| upper.wrapping_add(1));
                counts.push(unsigned(child, gimli::DW_AT_count).or(upper));
            }
        }
        let count = counts.iter().try_fold(1_u64, |product, count| product.checked_mul((*count)?));
        Some(Kind::Array { element, count: if counts.is_empty() { None } else { count } })
    }

    fn aggregate(
        &mut self,
        id: TypeId,
        unit: &Rc<Unit<Slice<'a>>>,
        entry: &Entry<'a>,
        depth: usize,
    ) -> Option<Aggregate> {
        let mut it = Aggregate {
            is_union: entry.tag() == gimli::DW_TAG_union_type,
            is_incomplete: entry.attr(gimli::DW_AT_declaration).is_some(),
            ..Aggregate::default()
        };
        let convention = entry.attr_value(gimli::DW_AT_calling_convention);
        let mut is_nontrivial = false;
        let mut tree = unit.entries_tree(Some(entry.offset())).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(node)) = children.next() {
            let child = node.entry().clone();
            match child.tag() {
                gimli::DW_TAG_member
                    if child.attr(gimli::DW_AT_external).is_none() && it.members.len() < MEMBERS_MAX =>
                {
                    is_nontrivial |= self.name(id.unit, &child).is_some_and(|name| name.starts_with("_vptr"));
                    it.members.extend(self.member(id.unit, &child, depth));
                }
                gimli::DW_TAG_inheritance => {
                    if child.attr(gimli::DW_AT_virtuality).is_some() {
                        // Where a virtual base is, only the object itself says.
                        is_nontrivial = true;
                        continue;
                    }
                    let base = self.member(id.unit, &child, depth);
                    it.members.extend(base.map(|base| Member { name: String::new(), ..base }));
                }
                gimli::DW_TAG_template_type_parameter => it.arguments.extend(self.type_in(id.unit, &child)),
                gimli::DW_TAG_subprogram => is_nontrivial |= self.is_nontrivial(id, unit, &child),
                gimli::DW_TAG_variant_part => it.variants = self.variants(id.unit, unit, &child, depth),
                _ => {}
            }
        }
        it.is_by_reference = match convention {
            Some(AttributeValue::CallingConvention(gimli::DwCc(4))) => true,
            Some(AttributeValue::CallingConvention(gimli::DwCc(5))) => false,
            _ => {
                let members: Vec<TypeId> = it.members.iter().map(|member| member.ty).collect();
                is_nontrivial || members.into_iter().any(|member| self.holds_by_reference(member, depth))
            }
        };
        Some(it)
    }

    fn holds_by_reference(&mut self, id: TypeId, depth: usize) -> bool {
        match &self.read(id, depth + 1).kind {
            Kind::Aggregate(inner) => inner.is_by_reference,
            Kind::Array { element, .. } => self.holds_by_reference(*element, depth + 1),
            _ => false,
        }
    }

    /// Whether a member function makes its class non-trivial for calls: a destructor, or a
    /// constructor that copies or moves, which the program itself has.
    fn is_nontrivial(&mut self, class: TypeId, unit: &Unit<Slice<'a>>, entry: &Entry<'a>) -> bool {
        let is_implicit = entry.attr(gimli::DW_AT_artificial).is_some()
            || entry.attr(gimli::DW_AT_deleted).is_some()
            || unsigned(entry, gimli::DW_AT_defaulted) == Some(1);
        if is_implicit {
            return false;
        }
        let Some(name) = self.name(class.unit, entry) else { return false };
        if name.starts_with('~') {
            return true;
        }
        let class_name = unit
            .entry(UnitOffset(class.offset))
            .ok()
            .and_then(|class_entry| self.name(class.unit, &class_entry))
            .unwrap_or_default();
        if class_name.split('<').next() != Some(name.as_str()) {
            return false;
        }
        let mut parameters = Vec::new();
        let Ok(mut tree) = unit.entries_tree(Some(entry.offset())) else { return false };
        let Ok(root) = tree.root() else { return false };
        let mut children = root.children();
        while let Ok(Some(child)) = children.next() {
            let child = child.entry();
            if child.tag() == gimli::DW_TAG_formal_parameter && child.attr(gimli::DW_AT_artificial).is_none()
            {
                parameters.push(self.type_in(class.unit, child));
            }
        }
        let Some(Some(first)) = parameters.first().copied() else { return false };
        self.refers_to(first, class)
    }

    /// Whether a type is a reference to a class, maybe a constant one.
    fn refers_to(&mut self, id: TypeId, class: TypeId) -> bool {
        let mut at = Some(id);
        let mut is_reference = false;
        for _ in 0..DEPTH_MAX {
            let Some(id) = at else { return false };
            if id == class {
                return is_reference;
            }
            let Some(unit) = self.units.get(id.unit as usize).cloned() else { return false };
            let Ok(entry) = unit.entry(UnitOffset(id.offset)) else { return false };
            match entry.tag() {
                gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type => is_reference = true,
                gimli::DW_TAG_const_type | gimli::DW_TAG_typedef | gimli::DW_TAG_volatile_type => {}
                _ => return false,
            }
            at = self.type_in(id.unit, &entry);
        }
        false
    }

    fn member(&mut self, unit: u32, entry: &Entry<'a>, depth: usize) -> Option<Member> {
        let ty = self.type_in(unit, entry)?;
        let name = self.name(unit, entry).unwrap_or_default();
        let offset = match entry.attr_value(gimli::DW_AT_data_member_location) {
            None => 0,
            Some(AttributeValue::Exprloc(expression)) => member_offset(expression)?,
            Some(value) => value.udata_value()?,
        };
        let bits = match unsigned(entry, gimli::DW_AT_bit_size) {
            None => None,
            Some(size) => match unsigned(entry, gimli::DW_AT_data_bit_offset) {
                Some(first) => {
                    return Some(Member { name, ty, offset: first / 8, bits: Some((first % 8, size)) });
                }
                None => {
                    // Of DWARF 2 and 3: counted from the most significant bit of the storage unit.
                    let storage = unsigned(entry, gimli::DW_AT_byte_size)
                        .unwrap_or_else(|| self.read(ty, depth + 1).size);
                    let from_top = unsigned(entry, gimli::DW_AT_bit_offset)?;
                    Some(((8 * storage).checked_sub(from_top.checked_add(size)?)?, size))
                }
            },
        };
        let (offset, bits) = match bits {
            Some((first, size)) => (offset + first / 8, Some((first % 8, size))),
            None => (offset, None),
        };
        Some(Member { name, ty, offset, bits })
    }

    fn variants(
        &mut self,
        index: u32,
        unit: &Unit<Slice<'a>>,
        part: &Entry<'a>,
        depth: usize,
    ) -> Option<Variants> {
        let discriminant = match part.attr_value(gimli::DW_AT_discr) {
            Some(AttributeValue::UnitRef(offset)) => {
                let entry = unit.entry(offset).ok()?;
                self.member(index, &entry, depth)
            }
            _ => None,
        };
        let mut cases = Vec::new();
        let mut tree = unit.entries_tree(Some(part.offset())).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(child)) = children.next() {
            let variant = child.entry().clone();
            if variant.tag() != gimli::DW_TAG_variant || cases.len() >= MEMBERS_MAX {
                continue;
            }
            let values = match variant.attr_value(gimli::DW_AT_discr_value) {
                Some(value) => {
                    vec![value.udata_value().or_else(|| value.sdata_value().map(|value| value as u64))?]
                }
                None if variant.attr(gimli::DW_AT_discr_list).is_some() => return None,
                None => Vec::new(),
            };
            let mut members = child.children();
            while let Ok(Some(member)) = members.next() {
                let entry = member.entry();
                if entry.tag() == gimli::DW_TAG_member {
                    let member = self.member(index, entry, depth)?;
                    cases.push(Case { name: member.name.clone(), values: values.clone(), member });
                    break;
                }
            }
        }
        Some(Variants { discriminant, cases })
    }

    /// The name with the namespaces and classes around it.
    fn qualified(&mut self, id: TypeId, name: &str) -> String {
        let Some(unit) = self.units.get(id.unit as usize).cloned() else { return name.to_owned() };
        let parents = self.parents.entry(id.unit).or_insert_with(|| parents_of(&unit));
        let mut names = vec![name.to_owned()];
        let mut at = id.offset;
        let mut around = Vec::new();
        while let Some(parent) = parents.get(&at) {
            at = *parent;
            around.push(at);
            if around.len() > DEPTH_MAX {
                break;
            }
        }
        for offset in around {
            let Ok(entry) = unit.entry(UnitOffset(offset)) else { break };
            if matches!(
                entry.tag(),
                gimli::DW_TAG_namespace
                    | gimli::DW_TAG_structure_type
                    | gimli::DW_TAG_class_type
                    | gimli::DW_TAG_union_type
            ) {
                names.extend(self.name(id.unit, &entry));
            }
        }
        names.reverse();
        names.join("::")
    }

    /// A type as a programmer writes it, for messages.
    pub(crate) fn shown(&mut self, id: Option<TypeId>) -> String {
        let mut at = id;
        let mut marks = Vec::new();
        for _ in 0..DEPTH_MAX {
            let Some(id) = at else { break };
            let Some(unit) = self.units.get(id.unit as usize).cloned() else { break };
            let Ok(entry) = unit.entry(UnitOffset(id.offset)) else { break };
            match entry.tag() {
                gimli::DW_TAG_pointer_type if self.name(id.unit, &entry).is_none() => marks.push("*"),
                gimli::DW_TAG_reference_type => marks.push("&"),
                gimli::DW_TAG_rvalue_reference_type => marks.push("&&"),
                gimli::DW_TAG_const_type => marks.push("const "),
                gimli::DW_TAG_volatile_type | gimli::DW_TAG_restrict_type | gimli::DW_TAG_atomic_type => {}
                gimli::DW_TAG_subroutine_type => return format!("function {}", marks.concat()),
                gimli::DW_TAG_array_type => marks.push("[]"),
                _ => {
                    let name = self.name(id.unit, &entry).unwrap_or_else(|| "?".to_owned());
                    return written(&name, &marks);
                }
            }
            at = self.type_in(id.unit, &entry);
        }
        written("void", &marks)
    }
}

fn is_signed(ty: &Type) -> bool {
    matches!(ty.kind, Kind::Integer { is_signed: true } | Kind::Char { is_signed: true })
}

/// A type's name with its marks, the outermost one first.
fn written(name: &str, marks: &[&str]) -> String {
    let mut text = name.to_owned();
    for mark in marks.iter().rev() {
        match *mark {
            "const " if text == name => text = format!("const {text}"),
            "const " => text.push_str(" const"),
            mark => {
                if !text.ends_with(['*', '&']) {
                    text.push(' ');
                }
                text.push_str(mark);
            }
        }
    }
    text
}

/// For each entry of a unit that isn't at its top: the one around it.
fn parents_of(unit: &Unit<Slice<'_>>) -> HashMap<usize, usize> {
    let mut parents = HashMap::new();
    let mut stack: Vec<usize> = Vec::new();
    let Ok(mut entries) = unit.entries_raw(None) else { return parents };
    while !entries.is_empty() {
        let offset = entries.next_offset().0;
        match entries.read_abbreviation() {
            Ok(Some(abbreviation)) => {
                if stack.len() > 1
                    && let Some(parent) = stack.last()
                {
                    parents.insert(offset, *parent);
                }
                if entries.skip_attributes(abbreviation.attributes()).is_err() {
                    break;
                }
                if abbreviation.has_children() {
                    stack.push(offset);
                }
            }
            Ok(None) => {
                stack.pop();
            }
            Err(_) => break,
        }
    }
    parents
}

pub(crate) fn unsigned(entry: &Entry<'_>, name: gimli::DwAt) -> Option<u64> {
    entry.attr_value(name)?.udata_value()
}

/// `DW_OP_plus_uconst N`, as DWARF 2 has it.
fn member_offset(expression: gimli::Expression<Slice<'_>>) -> Option<u64> {
    let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 5 };
    let mut operations = expression.operations(encoding);
    match (operations.next().ok()??, operations.next().ok()?) {
        (gimli::Operation::PlusConstant { value }, None) => Some(value),
        _ => None,
    }
}

fn base_kind(entry: &Entry<'_>, name: &str) -> Kind {
    let Some(AttributeValue::Encoding(encoding)) = entry.attr_value(gimli::DW_AT_encoding) else {
        return Kind::Other;
    };
    match encoding {
        gimli::DW_ATE_boolean => Kind::Bool,
        gimli::DW_ATE_signed => Kind::Integer { is_signed: true },
        gimli::DW_ATE_unsigned if name == "()" || name == "!" => Kind::Void,
        gimli::DW_ATE_unsigned => Kind::Integer { is_signed: false },
        gimli::DW_ATE_signed_char if name == "i8" => Kind::Integer { is_signed: true },
        gimli::DW_ATE_unsigned_char if name == "u8" => Kind::Integer { is_signed: false },
        gimli::DW_ATE_signed_char if name == "signed char" => Kind::Integer { is_signed: true },
        gimli::DW_ATE_unsigned_char if name == "unsigned char" => Kind::Integer { is_signed: false },
        gimli::DW_ATE_signed_char => Kind::Char { is_signed: true },
        gimli::DW_ATE_unsigned_char | gimli::DW_ATE_UTF => Kind::Char { is_signed: false },
        gimli::DW_ATE_float => Kind::Float,
        _ => Kind::Other,
    }
}

//! Layouts: the items of a program, kept once for each program, in trace files as JSON.

use everycall_format::trigger::type_hash;
use serde::{Deserialize, Serialize};

/// The items of one program, in the order in which it writes them.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Layout {
    /// The items.
    pub items: Vec<Item>,
}

/// A value with its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// A parameter's or member's name, or an expression.
    pub name: String,
    /// The copied bytes.
    pub content: Content,
}

/// The content of an item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// A status and the bytes of the shape.
    Fixed(Shape),
    /// 4 bytes, or 8 if the shape has more than 4, which begin with those of the shape. A register
    /// can always be copied, so there is no status.
    Word(Shape),
    /// A status, a header, and bytes of a text.
    Text,
    /// As `Text`, but the bytes are a socket address.
    SocketAddress,
    /// A status, a header, and bytes of elements.
    Elements(Shape),
    /// Items, without bytes of its own.
    Group(Vec<Item>),
    /// A status. If it is `PRESENT`, the content follows.
    Optional(Box<Content>),
    /// A status and the index of a case, whose items follow.
    Choice(Vec<(String, Vec<Item>)>),
    /// No bytes at all.
    Missing(Missing),
}

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// The optimiser has removed it, or nothing says where it is.
    OptimisedOut,
    /// The type is only declared.
    Incomplete,
    /// Its name is on the deny list.
    Hidden,
    /// There is no space for it behind an event.
    NoSpace,
}

/// Bytes of a fixed size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// An integer of 1 to 16 bytes.
    Integer {
        /// Bytes.
        size: usize,
        /// Whether it has a sign.
        is_signed: bool,
    },
    /// Permissions of a file, in octal.
    Octal(usize),
    /// A truth value of one byte or more.
    Bool(usize),
    /// A character of so many bytes.
    Char(usize),
    /// A float of 2, 4 or 8 bytes, or x87's, in 10 or 16 bytes.
    Float(usize),
    /// An enumeration.
    Enum {
        /// Bytes.
        size: usize,
        /// Whether it has a sign.
        is_signed: bool,
        /// Names of values.
        values: Vec<(String, i128)>,
    },
    /// An address.
    Pointer,
    /// The address of a function.
    Function,
    /// The address behind the instruction that made the call.
    CallSite,
    /// Characters up to the first zero byte.
    Chars(usize),
    /// Members, of which some may be bit fields.
    Struct {
        /// Bytes.
        size: usize,
        /// Name, offset, bits as first bit and number, shape.
        members: Vec<Field>,
    },
    /// Elements, and whether there are more of them.
    Array(Box<Shape>, usize, bool),
    /// Seconds and nanoseconds, at these offsets.
    Duration(usize, usize),
    /// Bytes that aren't shown.
    Opaque(usize),
    /// Bytes in hexadecimal.
    Hex(usize),
}

/// A member of a struct.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// Empty for a base.
    pub name: String,
    /// Where it begins.
    pub offset: usize,
    /// Of a bit field: the first bit and how many.
    pub bits: Option<(u32, u32)>,
    /// What it is.
    pub shape: Shape,
}

impl Layout {
    /// As it stands in trace files.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Nothing in a layout fails to be written.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads what [`Layout::to_bytes`] has written. `None` if it is damaged, or has something that
    /// this version doesn't know.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Option<Layout> {
        serde_json::from_slice(bytes).ok()
    }

    /// The id of the layout with these bytes: the same for the same layout, whoever makes it. Never
    /// 0.
    #[must_use]
    pub fn id_of(bytes: &[u8]) -> u32 {
        let hash = type_hash(bytes);
        ((hash ^ hash >> 32) as u32).max(1)
    }
}

impl Shape {
    /// Its bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Integer { size, .. } | Self::Enum { size, .. } | Self::Struct { size, .. } => *size,
            Self::Bool(size) | Self::Char(size) | Self::Float(size) | Self::Chars(size) => *size,
            Self::Opaque(size) | Self::Hex(size) | Self::Octal(size) => *size,
            Self::Pointer | Self::Function | Self::CallSite => 8,
            Self::Array(element, count, _) => element.size().saturating_mul(*count),
            Self::Duration(..) => 16,
        }
    }
}

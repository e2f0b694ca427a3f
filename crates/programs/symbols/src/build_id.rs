//! Build ids, as people read them.

use std::fmt;

/// A build id, shown as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildIdText(pub Vec<u8>);

impl fmt::Display for BuildIdText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

//! How the values of calls lie in their captures.

use std::collections::HashMap;

use everycall_timeline::{EXCEPTION, Trace, ValuesNumber};
use everycall_values::layout::Layout;
use everycall_values::{Value, decode};

use crate::thrown;

/// The layouts of a trace's captures, by id.
#[derive(Clone, Debug, Default)]
pub struct Layouts(HashMap<u32, Layout>);

impl Layouts {
    /// Those of a trace. A layout that this version can't read is left out.
    #[must_use]
    pub fn of(trace: &Trace<'_>) -> Layouts {
        let layouts = trace.source().recording().layouts.iter();
        Layouts(layouts.filter_map(|layout| Some((layout.id, Layout::of_bytes(&layout.bytes)?))).collect())
    }

    /// The values with their names; none if their layout isn't known.
    #[must_use]
    pub fn values(&self, trace: &Trace<'_>, number: ValuesNumber) -> Vec<(String, Value)> {
        trace.values().get(number).map_or_else(Vec::new, |(id, bytes)| self.decode(id, bytes))
    }

    /// The values in a capture's bytes, as for [`Layouts::values`].
    #[must_use]
    pub fn decode(&self, id: u32, bytes: &[u8]) -> Vec<(String, Value)> {
        match id {
            EXCEPTION => thrown::values(bytes),
            _ => self.0.get(&id).map_or_else(Vec::new, |layout| decode(layout, bytes)),
        }
    }
}

//! Answers for a viewer in the same process.

use std::ops::Range;

use serde_json::Value;

use crate::answers::{self, Slice, Tree};
use crate::library::Library;
use crate::query::Query;

impl Library {
    /// The answer to a request that has one in JSON; `docs/design/viewer.md` lists them.
    ///
    /// # Errors
    ///
    /// A sentence why there is none.
    pub fn answer(&self, name: &str, query: &str) -> Result<Value, String> {
        let answered = answers::json(self, name, &Query::parse(query));
        answered.unwrap_or_else(|| Err("the viewer has no such answer".to_owned()))
    }

    /// The slices of a track in a window of time that is so many pixels wide, by depth and then by
    /// time.
    ///
    /// # Errors
    ///
    /// A sentence why there are none.
    pub fn slices(
        &self,
        track: u32,
        (from, to): (u64, u64),
        pixels: u64,
        depths: Range<usize>,
    ) -> Result<Vec<Slice>, String> {
        answers::slices_of(self, track, (from, to.max(from), pixels.max(1)), depths)
    }

    /// The calls by path; `query` has a range, as `flame` takes it.
    ///
    /// # Errors
    ///
    /// A sentence why there is none.
    pub fn tree(&self, query: &str) -> Result<Tree, String> {
        answers::whole_tree(self, &Query::parse(query))
    }

    /// Begin and end of the window that the filter leaves, in nanoseconds, once the files are open.
    ///
    /// # Errors
    ///
    /// A sentence why it isn't known.
    pub fn window(&self) -> Result<(Option<u64>, Option<u64>), String> {
        let files = self.files()?;
        let filters = || files.iter().map(|open| &open.file.filter);
        let since = filters().map(|filter| filter.since_ns).min().flatten();
        let until = filters().map(|filter| filter.until_ns).collect::<Option<Vec<_>>>();
        Ok((since, until.and_then(|all| all.into_iter().max())))
    }
}

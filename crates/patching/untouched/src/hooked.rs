//! How many functions of a file have hooks, and why others have none.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use everycall_plans::PlanError;
use everycall_rewrite::Refusal;

/// The functions of a file that was built without hooks, in a process that got some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hooked {
    /// All.
    pub functions: u64,
    /// Those with hooks.
    pub hooked: u64,
    /// Those that could have some, and weren't wanted.
    pub not_chosen: u64,
    /// Those that can't, by reason.
    pub left_out: BTreeMap<Refusal, u64>,
}

impl Hooked {
    /// Counts the functions of a file. `origins`: image addresses at which hooks stand. `None` if
    /// it is another file than the one with this build id.
    ///
    /// # Errors
    ///
    /// The file can't be planned.
    pub fn of(path: &Path, build_id: &[u8], origins: &HashSet<u64>) -> Result<Option<Hooked>, PlanError> {
        let plan = everycall_plans::of_file(path)?;
        if plan.build_id != build_id {
            return Ok(None);
        }
        let hooked =
            plan.functions.iter().filter(|function| origins.contains(&function.start)).count() as u64;
        let possible = plan.functions.len() as u64;
        let mut left_out = BTreeMap::new();
        for function in &plan.left_out {
            *left_out.entry(function.refusal).or_default() += 1;
        }
        let functions = possible + plan.left_out.len() as u64;
        Ok(Some(Hooked { functions, hooked, not_chosen: possible - hooked, left_out }))
    }
}

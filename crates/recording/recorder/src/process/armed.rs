//! The functions of a process that triggers name, written into its arena as modules are loaded.

use std::collections::HashSet;
use std::sync::Arc;

use everycall_format::trigger::TriggerSite;

use crate::memory::arena::Arena;
use crate::memory::shared_triggers::SharedTriggers;
use crate::process::modules::Modules;
use crate::process::triggers::FindSites;

/// Identifies the module of a table entry: how often the entry was reused, where its code begins,
/// when it was loaded.
type Whose = (u32, u32, u64);

/// The functions that triggers name, by module. Shared with forked children, because there may be a
/// million.
#[derive(Clone, Debug, Default)]
struct TriggerFunctions {
    modules: Vec<(Whose, Arc<[TriggerSite]>)>,
    /// The [`SharedTriggers::generation`] that they belong to.
    generation: u32,
    /// First code offset and trigger of functions that had no room in the arena at some time.
    left_out: Arc<HashSet<(u32, u32)>>,
}

/// The armed functions of a process.
#[derive(Debug, Default)]
pub(crate) struct Armed {
    triggers: Option<Arc<SharedTriggers>>,
    found: TriggerFunctions,
    /// Number of exception types in the arena.
    types: Option<usize>,
}

impl Armed {
    /// The armed functions of the process that owns `arena`. A forked child has copied its
    /// parent's, unless they were being replaced.
    pub fn of(arena: &Arena, parent: Option<&Armed>) -> Armed {
        let triggers = SharedTriggers::map(arena).ok().flatten().map(Arc::new);
        let generation = triggers.as_ref().map_or(0, |triggers| triggers.generation());
        let same = parent.filter(|parent| generation != 0 && generation == parent.found.generation);
        Armed { triggers, found: same.map(|parent| parent.found.clone()).unwrap_or_default(), types: None }
    }

    /// The triggers in the arena.
    pub fn triggers(&self) -> Option<&Arc<SharedTriggers>> {
        self.triggers.as_ref()
    }

    /// When the process last stopped waiting for us, in ticks.
    pub fn given_up(&self) -> u64 {
        self.triggers.as_ref().map_or(0, |triggers| triggers.given_up())
    }

    /// Events before that time were processed.
    pub fn hear_of(&self, given_up: u64) {
        if let Some(triggers) = &self.triggers {
            triggers.hear_of(given_up);
        }
    }

    /// Arms the functions of modules that are new.
    pub fn look(&mut self, modules: &Modules, finder: &mut dyn FindSites) {
        let new = self.find_in_new(modules, finder);
        if let (Some(thrown), Some(triggers)) = (finder.thrown(), &self.triggers)
            && self.types != Some(thrown.types.len())
        {
            triggers.set_throws(thrown.any, thrown.anywhere, &thrown.types);
            self.types = Some(thrown.types.len());
        }
        if new.is_empty() {
            return;
        }
        let given_up = self.replace(finder);
        for (place, _) in new.into_iter().filter(|(_, loaded_ticks)| *loaded_ticks < given_up) {
            finder.late(&self.found.modules[place].1);
        }
    }

    /// Finds the sites of new modules. Returns the positions and load times of modules with sites.
    fn find_in_new(&mut self, modules: &Modules, finder: &mut dyn FindSites) -> Vec<(usize, u64)> {
        let mut new = Vec::new();
        let known = &mut self.found.modules;
        for (place, (module, path, file)) in modules.present().enumerate() {
            let whose = (module.predecessors, module.code_start, module.loaded_ticks);
            if known.get(place).is_some_and(|(known, _)| *known == whose) {
                continue;
            }
            let sites = finder.sites(module, path, file);
            if !sites.is_empty() {
                new.push((place, module.loaded_ticks));
            }
            while known.len() <= place {
                known.push((Whose::default(), Arc::default()));
            }
            known[place] = (whose, sites.into());
        }
        new
    }

    /// Writes all sites into the arena. Returns when the process last stopped waiting for that.
    fn replace(&mut self, finder: &mut dyn FindSites) -> u64 {
        let Some(triggers) = &self.triggers else { return u64::MAX };
        let found = &mut self.found;
        found.generation = found.generation.wrapping_add(1).max(1);
        let all = found.modules.iter().flat_map(|(_, sites)| sites.iter());
        let mut left_out = triggers.replace(all.copied().collect(), found.generation);
        // Functions that had no room before are counted already.
        if !left_out.is_empty() {
            let known = Arc::make_mut(&mut found.left_out);
            left_out.retain(|site| known.insert((site.first, site.rule)));
        }
        finder.not_armed(&left_out);
        // Read afterwards: a process that stops waiting later already uses these sites.
        triggers.given_up()
    }
}

//! The symbols of a module, from its files or kept ones; and what was asked of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::{Answers, KeptFunction, KeptSymbols, Question};
use crate::function::{Function, FunctionId, InlinedCall, Leave};
use crate::identity::ModuleIdentity;
use crate::module::ModuleSymbols;
use crate::options::SymbolOptions;
use crate::source::CompiledSource;
use crate::warning::SymbolWarning;

/// The symbols of a module, wherever they come from.
pub struct Symbols(From);

enum From {
    File(Box<ModuleSymbols>),
    Keeping(Box<ModuleSymbols>, Questions),
    Kept(Box<Answers>),
}

/// Questions about a module's file, with the answers.
#[derive(Default)]
struct Questions {
    addresses: BTreeMap<u64, FunctionId>,
    leaves: BTreeMap<u64, Leave>,
    answers: BTreeMap<Question, Option<bool>>,
    constants: BTreeMap<u64, Vec<u8>>,
    variables: BTreeMap<u64, String>,
    tasks: BTreeMap<u64, String>,
    lines: BTreeMap<u64, (PathBuf, u32)>,
}

impl Symbols {
    /// The symbols of a module's files; see [`ModuleSymbols::open`].
    #[must_use]
    pub fn open(identity: &ModuleIdentity<'_>, options: &SymbolOptions) -> Symbols {
        Symbols(From::File(Box::new(ModuleSymbols::open(identity, options))))
    }

    /// The symbols of a module's files. Notes all answers, for [`Symbols::kept`].
    #[must_use]
    pub fn keeping(identity: &ModuleIdentity<'_>, options: &SymbolOptions) -> Symbols {
        Symbols(From::Keeping(Box::new(ModuleSymbols::open(identity, options)), Questions::default()))
    }

    /// Those that were kept of the module that was recorded under `path`.
    #[must_use]
    pub fn of_kept(kept: KeptSymbols, path: &Path) -> Symbols {
        Symbols(From::Kept(Box::new(Answers::new(kept, path))))
    }

    /// See [`ModuleSymbols::function_at`].
    pub fn function_at(&mut self, image_address: u64) -> FunctionId {
        match &mut self.0 {
            From::File(file) => file.function_at(image_address),
            From::Kept(kept) => kept.function_at(image_address),
            From::Keeping(file, asked) => asked.function_at(file, image_address),
        }
    }

    /// Whether there are any.
    #[must_use]
    pub fn has_functions(&self) -> bool {
        self.is_known(FunctionId(0))
    }

    /// Whether a function is one that symbols or tables name, rather than an address outside all of
    /// them.
    #[must_use]
    pub fn is_known(&self, id: FunctionId) -> bool {
        match &self.0 {
            From::File(file) | From::Keeping(file, _) => id.index() < file.functions().len(),
            From::Kept(kept) => id.index() < kept.count(),
        }
    }

    /// See [`ModuleSymbols::function`]; `id` is one that these symbols gave.
    pub fn function(&mut self, id: FunctionId) -> Function {
        match &mut self.0 {
            From::File(file) | From::Keeping(file, _) => file.function(id).clone(),
            From::Kept(kept) => kept.function(id).cloned().unwrap_or_else(|| unknown(id)),
        }
    }

    /// A function's place among all functions of its module: the same for all traces of a build.
    #[must_use]
    pub fn place(&self, id: FunctionId) -> u32 {
        match &self.0 {
            From::File(_) | From::Keeping(..) => id.0,
            From::Kept(kept) => kept.place(id),
        }
    }

    /// See [`ModuleSymbols::is_ambiguous`].
    pub fn is_ambiguous(&mut self, id: FunctionId) -> bool {
        match &mut self.0 {
            From::File(file) | From::Keeping(file, _) => file.is_ambiguous(id),
            From::Kept(kept) => kept.is_ambiguous(id),
        }
    }

    /// See [`ModuleSymbols::has_split_part`]. Of embedded symbols, the parts that were called are
    /// known.
    pub fn has_split_part(&mut self, id: FunctionId) -> bool {
        match &mut self.0 {
            From::File(file) | From::Keeping(file, _) => file.has_split_part(id),
            From::Kept(kept) => kept.has_split_part(id),
        }
    }

    /// See [`ModuleSymbols::twins`].
    pub fn twins(&mut self, id: FunctionId) -> (Vec<String>, usize) {
        match &mut self.0 {
            From::File(file) | From::Keeping(file, _) => file.twins(id),
            From::Kept(kept) => kept.twins(id),
        }
    }

    /// See [`ModuleSymbols::inlined`].
    pub fn inlined(&mut self, id: FunctionId) -> (Vec<InlinedCall>, u64) {
        match &mut self.0 {
            From::File(file) | From::Keeping(file, _) => file.inlined(id),
            From::Kept(kept) => kept.inlined(id),
        }
    }

    /// See [`ModuleSymbols::inlined_at`]. Of symbols in a trace, it isn't known.
    pub fn inlined_at(&mut self, image_address: u64) -> Vec<String> {
        match &mut self.0 {
            From::File(file) | From::Keeping(file, _) => file.inlined_at(image_address),
            From::Kept(_) => Vec::new(),
        }
    }

    /// See [`ModuleSymbols::is_bare_thunk`].
    pub fn is_bare_thunk(&mut self, image_address: u64) -> bool {
        match &mut self.0 {
            From::File(file) => file.is_bare_thunk(image_address),
            From::Kept(kept) => kept.is_bare_thunk(image_address),
            From::Keeping(file, asked) => {
                asked.function_at(file, image_address);
                file.is_bare_thunk(image_address)
            }
        }
    }

    /// See [`ModuleSymbols::is_by_gcc`].
    pub fn is_by_gcc(&mut self, image_address: u64) -> Option<bool> {
        match &mut self.0 {
            From::File(file) => file.is_by_gcc(image_address),
            From::Kept(kept) => kept.is_by_gcc(image_address),
            From::Keeping(file, asked) => {
                asked.function_at(file, image_address);
                file.is_by_gcc(image_address)
            }
        }
    }

    /// See [`ModuleSymbols::leave`].
    pub fn leave(&mut self, image_address: u64) -> Option<Leave> {
        match &mut self.0 {
            From::File(file) => file.leave(image_address),
            From::Kept(kept) => kept.leave(image_address),
            From::Keeping(file, asked) => {
                let leave = file.leave(image_address)?;
                asked.leaves.insert(image_address, leave.clone());
                Some(leave)
            }
        }
    }

    /// See [`ModuleSymbols::is_same_function`].
    pub fn is_same_function(&mut self, entry: u64, code: u64) -> Option<bool> {
        match &mut self.0 {
            From::File(file) => file.is_same_function(entry, code),
            From::Kept(kept) => kept.is_same_function(entry, code),
            From::Keeping(file, asked) => {
                let answer = file.is_same_function(entry, code);
                let is_one = asked.function_at(file, entry) == asked.function_at(file, code);
                if answer != Some(true) || !is_one {
                    asked.answers.insert(Question::SameFunction(entry, code), answer);
                }
                answer
            }
        }
    }

    /// See [`ModuleSymbols::is_inlined_at`].
    pub fn is_inlined_at(&mut self, image_address: u64, id: FunctionId, is_callees: bool) -> Option<bool> {
        match &mut self.0 {
            From::File(file) => file.is_inlined_at(image_address, id, is_callees),
            From::Kept(kept) => kept.is_inlined_at(image_address, id, is_callees),
            From::Keeping(file, asked) => {
                let answer = file.is_inlined_at(image_address, id, is_callees);
                asked.answers.insert(Question::Inlined(image_address, id, is_callees), answer);
                answer
            }
        }
    }

    /// See [`ModuleSymbols::may_call`].
    pub fn may_call(&mut self, caller: u64, callee: u64) -> Option<bool> {
        match &mut self.0 {
            From::File(file) => file.may_call(caller, callee),
            From::Kept(kept) => kept.may_call(caller, callee),
            From::Keeping(file, asked) => {
                let answer = file.may_call(caller, callee);
                asked.answers.insert(Question::MayCall(caller, callee), answer);
                answer
            }
        }
    }

    /// See [`ModuleSymbols::is_called`].
    pub fn is_called(&mut self, id: FunctionId, linkage_name: &str) -> Option<bool> {
        match &mut self.0 {
            From::File(file) => file.is_called(id, linkage_name),
            From::Kept(kept) => kept.is_called(id, linkage_name),
            From::Keeping(file, asked) => {
                let answer = file.is_called(id, linkage_name);
                asked.answers.insert(Question::Called(id, linkage_name.to_owned()), answer);
                answer
            }
        }
    }

    /// See [`ModuleSymbols::constant_text`].
    pub fn constant_text(&mut self, image_address: u64) -> Option<Vec<u8>> {
        match &mut self.0 {
            From::File(file) => file.constant_text(image_address),
            From::Kept(kept) => kept.constant_text(image_address),
            From::Keeping(file, asked) => {
                let text = file.constant_text(image_address)?;
                asked.constants.insert(image_address, text.clone());
                Some(text)
            }
        }
    }

    /// See [`ModuleSymbols::line_at`].
    pub fn line_at(&mut self, image_address: u64) -> Option<(PathBuf, u32)> {
        match &mut self.0 {
            From::File(file) => file.line_at(image_address),
            From::Kept(kept) => kept.line_at(image_address),
            From::Keeping(file, asked) => {
                let line = file.line_at(image_address)?;
                asked.lines.insert(image_address, line.clone());
                Some(line)
            }
        }
    }

    /// See [`ModuleSymbols::distance_in_function`].
    pub fn distance_in_function(&mut self, image_address: u64) -> Option<u64> {
        match &mut self.0 {
            From::File(file) => file.distance_in_function(image_address),
            From::Kept(kept) => kept.distance_in_function(image_address),
            From::Keeping(file, asked) => {
                asked.function_at(file, image_address);
                file.distance_in_function(image_address)
            }
        }
    }

    /// See [`ModuleSymbols::variable_at`].
    pub fn variable_at(&mut self, image_address: u64) -> Option<String> {
        match &mut self.0 {
            From::File(file) => file.variable_at(image_address),
            From::Kept(kept) => kept.variable_at(image_address),
            From::Keeping(file, asked) => {
                let name = file.variable_at(image_address)?;
                asked.variables.insert(image_address, name.clone());
                Some(name)
            }
        }
    }

    /// See [`ModuleSymbols::task_name_at`].
    pub fn task_name_at(&mut self, image_address: u64) -> Option<String> {
        match &mut self.0 {
            From::File(file) => file.task_name_at(image_address),
            From::Kept(kept) => kept.task_name_at(image_address),
            From::Keeping(file, asked) => {
                let name = file.task_name_at(image_address)?;
                asked.tasks.insert(image_address, name.clone());
                Some(name)
            }
        }
    }

    /// See [`ModuleSymbols::compiled_source`].
    #[must_use]
    pub fn compiled_source(&self, path: &Path) -> CompiledSource {
        match &self.0 {
            From::File(file) | From::Keeping(file, _) => file.compiled_source(path),
            From::Kept(kept) => kept.compiled_source(path),
        }
    }

    /// See [`ModuleSymbols::take_warnings`]. Of kept symbols there are none.
    pub fn take_warnings(&mut self) -> Vec<SymbolWarning> {
        match &mut self.0 {
            From::File(file) | From::Keeping(file, _) => file.take_warnings(),
            From::Kept(_) => Vec::new(),
        }
    }

    /// Takes the warnings that kept symbols were stored with, as sentences.
    pub fn take_kept_warnings(&mut self) -> Vec<String> {
        match &mut self.0 {
            From::File(_) | From::Keeping(..) => Vec::new(),
            From::Kept(kept) => kept.take_warnings(),
        }
    }

    /// The questions so far with their answers, and all facts about the functions involved; `None`
    /// unless they are [kept](Symbols::keeping), and if the module has no symbols at all.
    pub fn kept(&mut self) -> Option<KeptSymbols> {
        match &mut self.0 {
            From::File(_) | From::Kept(_) => None,
            From::Keeping(file, asked) => {
                let kept = asked.kept(file);
                let is_empty = kept.functions.is_empty()
                    && kept.constants.is_empty()
                    && kept.variables.is_empty()
                    && kept.tasks.is_empty()
                    && kept.lines.is_empty();
                (!is_empty).then_some(kept)
            }
        }
    }
}

fn unknown(id: FunctionId) -> Function {
    Function {
        name: format!("function {}", id.0),
        linkage_name: None,
        part: None,
        whole: None,
        source: crate::NameSource::Address,
        start: 0,
        size: 0,
        file: None,
        line: None,
    }
}

impl Questions {
    fn function_at(&mut self, file: &mut ModuleSymbols, address: u64) -> FunctionId {
        let id = file.function_at(address);
        if id.index() < file.functions().len() {
            self.addresses.insert(address, id);
        }
        id
    }

    /// With the functions renumbered without gaps, in the same order.
    fn kept(&self, file: &mut ModuleSymbols) -> KeptSymbols {
        let mut wanted: BTreeSet<FunctionId> = self.addresses.values().copied().collect();
        wanted.extend(self.leaves.values().filter_map(|leave| match leave {
            Leave::Jump(id) => Some(*id),
            _ => None,
        }));
        wanted.extend(self.answers.keys().filter_map(|question| match question {
            Question::Inlined(_, id, _) | Question::Called(id, _) => Some(*id),
            Question::SameFunction(..) | Question::MayCall(..) => None,
        }));
        let is_known = file.functions().len();
        wanted.retain(|id| id.index() < is_known);
        let mut left: Vec<FunctionId> = wanted.iter().copied().collect();
        while let Some(id) = left.pop() {
            left.extend(file.function(id).whole.filter(|whole| wanted.insert(*whole)));
        }
        let numbers: HashMap<FunctionId, FunctionId> =
            wanted.iter().copied().zip((0..).map(FunctionId)).collect();
        let number = |id: &FunctionId| numbers.get(id).copied();
        let mut functions = Vec::with_capacity(wanted.len());
        for id in &wanted {
            let mut function = file.function(*id).clone();
            function.whole = function.whole.as_ref().and_then(number);
            let ((twins, more_twins), (inlined, more_inlined)) = (file.twins(*id), file.inlined(*id));
            let start = function.start;
            functions.push(KeptFunction {
                twins,
                more_twins,
                inlined,
                more_inlined,
                place: id.0,
                is_ambiguous: file.is_ambiguous(*id),
                is_bare_thunk: file.is_bare_thunk(start),
                by_gcc: file.is_by_gcc(start),
                function,
            });
        }
        let addresses =
            self.addresses.iter().filter_map(|(address, id)| Some((*address, number(id)?))).collect();
        let leaves = self.leaves.iter().map(|(address, leave)| {
            let leave = match leave {
                Leave::Jump(id) => number(id).map_or(Leave::JumpAnywhere, Leave::Jump),
                leave => leave.clone(),
            };
            (*address, leave)
        });
        let answers = self.answers.iter().filter_map(|(question, answer)| {
            let question = match question {
                Question::SameFunction(..) | Question::MayCall(..) => question.clone(),
                Question::Inlined(address, id, callees) => Question::Inlined(*address, number(id)?, *callees),
                Question::Called(id, name) => Question::Called(number(id)?, name.clone()),
            };
            Some((question, *answer))
        });
        KeptSymbols {
            functions,
            addresses,
            leaves: leaves.collect(),
            answers: answers.collect(),
            constants: self.constants.iter().map(|(address, text)| (*address, text.clone())).collect(),
            variables: self.variables.iter().map(|(address, name)| (*address, name.clone())).collect(),
            tasks: self.tasks.iter().map(|(address, name)| (*address, name.clone())).collect(),
            lines: self.lines.iter().map(|(address, line)| (*address, line.clone())).collect(),
            compiled: BTreeMap::new(),
            warnings: Vec::new(),
        }
    }
}

//! Sums of calls by group.

use std::cmp::Reverse;

use everycall_calls::StateTimes;

use crate::allocations::Allocations;
use crate::counted::Counts;
use crate::functions::{Function, Functions};
use crate::group::{Grouping, Key};
use crate::hooks::{Correction, NoPrices, Range};
use crate::notes::Notes;
use crate::source::CallSource;
use crate::sums::Sums;
use crate::table::{By, Cells, Table};
use crate::tree::Tree;
use crate::walk;

/// The sums of one function. Its clones, such as the copies that compilers make of a constructor,
/// are included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionRow {
    /// Demangled name.
    pub name: String,
    /// The linker names of the called code: several if there are clones.
    pub symbols: Vec<String>,
    /// File name of its module.
    pub module: String,
    /// Source file.
    pub file: Option<String>,
    /// Line of its declaration.
    pub line: Option<u32>,
    /// Number of calls in the trace, including truncated ones. A thunk and the function that it
    /// continues in are one call.
    pub calls: u64,
    /// Nanoseconds in it and its callees, as far as they are in the trace. Calls within a call of
    /// the same function add nothing.
    pub total_ns: u64,
    /// Nanoseconds in it without its callees.
    pub own_ns: u64,
    /// Upper bound of the time after its tail calls into untraced code: until each thread's next
    /// event. Not part of the other times.
    pub tail_at_most_ns: u64,
}

/// The number by which groups are sorted, largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Number of calls.
    Calls,
    /// Nanoseconds in the function itself.
    OwnTime,
    /// Nanoseconds in the function and its callees.
    TotalTime,
    /// Mean of the calls' durations.
    Average,
    /// The shortest call.
    Min,
    /// The longest call.
    Max,
    /// A percentile of the durations, in ten thousandths.
    Percentile(u32),
    /// All calls, also those whose events were overwritten.
    AllCalls,
    /// Calls that were unwound.
    Unwound,
    /// Nanoseconds in the function itself in which its thread was on a CPU.
    Running,
    /// Nanoseconds in the function itself in which its thread could have run, and others did.
    Runnable,
    /// Nanoseconds in the function itself in which its thread waited.
    Blocked,
    /// How often its thread left the CPU in the function itself, because it waited.
    Voluntary,
    /// How often its thread was taken off the CPU in the function itself while it could have run
    /// on.
    Involuntary,
    /// Bytes allocated in the function and its callees.
    Allocated,
    /// Bytes allocated in the function itself.
    OwnAllocated,
    /// Blocks allocated in the function and its callees.
    Blocks,
    /// Blocks allocated in the function itself.
    OwnBlocks,
    /// Bytes freed in the function and its callees.
    Freed,
    /// Bytes freed in the function itself.
    OwnFreed,
    /// Blocks freed in the function and its callees.
    FreedBlocks,
    /// Blocks freed in the function itself.
    OwnFreedBlocks,
}

impl Order {
    /// The names of the numbers.
    pub const NAMED: [(&'static str, Order); 25] = [
        ("calls", Order::Calls),
        ("all calls", Order::AllCalls),
        ("total", Order::TotalTime),
        ("own", Order::OwnTime),
        ("avg", Order::Average),
        ("min", Order::Min),
        ("p50", Order::Percentile(5_000)),
        ("p90", Order::Percentile(9_000)),
        ("p99", Order::Percentile(9_900)),
        ("p99.9", Order::Percentile(9_990)),
        ("max", Order::Max),
        ("throws", Order::Unwound),
        ("running", Order::Running),
        ("runnable", Order::Runnable),
        ("blocked", Order::Blocked),
        ("voluntary", Order::Voluntary),
        ("involuntary", Order::Involuntary),
        ("allocated", Order::Allocated),
        ("own-allocated", Order::OwnAllocated),
        ("blocks", Order::Blocks),
        ("own-blocks", Order::OwnBlocks),
        ("freed", Order::Freed),
        ("own-freed", Order::OwnFreed),
        ("freed-blocks", Order::FreedBlocks),
        ("own-freed-blocks", Order::OwnFreedBlocks),
    ];

    /// The number with this name. `self` and `average`, as other tools call them, mean `own` and
    /// `avg`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Order> {
        let name = match name {
            "self" => "own",
            "average" => "avg",
            "call" => "calls",
            "all-calls" | "all_calls" => "all calls",
            name => name,
        };
        Order::NAMED.iter().find(|(known, _)| *known == name).map(|(_, order)| *order)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Order::NAMED.iter().find(|(_, order)| *order == self).map_or("", |(name, _)| name)
    }

    /// Whether the number is a time in nanoseconds.
    #[must_use]
    pub fn is_time(self) -> bool {
        !self.is_memory()
            && !matches!(
                self,
                Order::Calls | Order::AllCalls | Order::Unwound | Order::Voluntary | Order::Involuntary
            )
    }

    /// Whether the number is about memory.
    #[must_use]
    pub fn is_memory(self) -> bool {
        self.is_bytes()
            || matches!(self, Order::Blocks | Order::OwnBlocks | Order::FreedBlocks | Order::OwnFreedBlocks)
    }

    /// Whether the number is one of bytes.
    #[must_use]
    pub fn is_bytes(self) -> bool {
        matches!(self, Order::Allocated | Order::OwnAllocated | Order::Freed | Order::OwnFreed)
    }

    /// This number of a group.
    #[must_use]
    pub fn number(self, sums: &Sums) -> u64 {
        match self {
            Order::Calls => sums.calls,
            Order::AllCalls => sums.all_calls,
            Order::OwnTime => sums.own_ns,
            Order::TotalTime => sums.total_ns,
            Order::Average => sums.times.average().unwrap_or(0),
            Order::Min => sums.times.min().unwrap_or(0),
            Order::Max => sums.times.max().unwrap_or(0),
            Order::Percentile(of) => sums.times.percentile(of).unwrap_or(0),
            Order::Unwound => sums.unwound,
            Order::Running => sums.own_states.running,
            Order::Runnable => sums.own_states.runnable,
            Order::Blocked => sums.own_states.blocked,
            Order::Voluntary => sums.own_states.voluntary,
            Order::Involuntary => sums.own_states.involuntary,
            Order::Allocated => sums.memory.allocated,
            Order::OwnAllocated => sums.own_memory.allocated,
            Order::Blocks => sums.memory.blocks,
            Order::OwnBlocks => sums.own_memory.blocks,
            Order::Freed => sums.memory.freed,
            Order::OwnFreed => sums.own_memory.freed,
            Order::FreedBlocks => sums.memory.freed_blocks,
            Order::OwnFreedBlocks => sums.own_memory.freed_blocks,
        }
    }
}

/// Calls by group, of one or several traces.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    grouping: Grouping,
    functions: Functions,
    cells: Cells,
    tree: Option<Tree>,
    traces: usize,
    /// How far what hooks cost reaches, if that was requested.
    range: Option<Range>,
    /// Calls of all groups.
    pub calls: u64,
    /// Calls that were unwound: left by an exception, longjmp or the end of their thread.
    pub unwound: u64,
    /// Whether it has traces of processes in which it was seen what calls allocate.
    pub counts_memory: bool,
    /// Losses that make the numbers incomplete.
    pub notes: Notes,
}

/// A group with its sums.
#[derive(Clone, Copy, Debug)]
pub struct Row<'p> {
    /// The group.
    pub key: &'p Key,
    /// Its calls.
    pub sums: &'p Sums,
}

impl Profile {
    /// Sums up all calls of a trace by function.
    #[must_use]
    pub fn of<S: CallSource>(source: &S) -> Profile {
        let mut profile = Profile::by(Grouping::Function);
        profile.add_trace(source, &S::Filter::default());
        profile
    }

    /// An empty profile.
    #[must_use]
    pub fn by(grouping: Grouping) -> Profile {
        let tree = (grouping == Grouping::Path).then(Tree::default);
        Profile { grouping, tree, ..Profile::default() }
    }

    /// Also computes the distribution of own times, which takes slightly longer.
    #[must_use]
    pub fn with_own_times(mut self) -> Profile {
        self.cells.has_own_times = true;
        self
    }

    /// Makes the duration of a call that ends in a tail call include its target's; an
    /// upper bound if the target isn't traced. Doesn't apply to groups by path.
    #[must_use]
    pub fn with_tails(mut self) -> Profile {
        self.cells.follows_tails = true;
        self
    }

    /// Also computes the cost of hooks in the times ([`Sums::hooks`]), where a trace says it: see
    /// [`Profile::add_trace_with_hooks`].
    #[must_use]
    pub fn with_hook_times(mut self) -> Profile {
        self.range = Some(Range::default());
        self
    }

    /// As [`Profile::add_trace`], for a profile with hook times.
    ///
    /// # Errors
    /// The trace doesn't say what hooks cost; nothing was added.
    pub fn add_trace_with_hooks<S: CallSource>(
        &mut self,
        source: &S,
        filter: &S::Filter,
    ) -> Result<(), NoPrices> {
        let (prices, range) = source.hook_prices()?;
        self.range.get_or_insert_default().include(range);
        self.cells.prices = Some(prices);
        self.add_trace(source, filter);
        self.cells.prices = None;
        Ok(())
    }

    /// How its times are corrected; `None` without hook times.
    #[must_use]
    pub fn correction(&self) -> Option<Correction> {
        self.range.map(Correction::new)
    }

    /// Cost of hooks in all of its calls, in picoseconds by the middle of the prices.
    #[must_use]
    pub fn hooks_ps(&self) -> u64 {
        self.cells.all.iter().map(|cell| cell.sums.hooks.own_ps).fold(0, u64::saturating_add)
    }

    /// A profile by function, with sums that were made before.
    #[must_use]
    pub fn of_functions(functions: impl IntoIterator<Item = (Function, Sums)>, notes: Notes) -> Profile {
        let mut profile = Profile { notes, traces: 1, ..Profile::by(Grouping::Function).with_own_times() };
        for (function, sums) in functions {
            let key = Key::Function(profile.functions.number(function));
            profile.cells.add(key, &sums);
        }
        profile.settle();
        profile
    }

    /// Adds the calls of a trace that pass a filter.
    pub fn add_trace<S: CallSource>(&mut self, source: &S, filter: &S::Filter) {
        let Profile { grouping, functions, cells, tree, notes, traces, .. } = self;
        let grouping = &*grouping;
        let label = match grouping {
            Grouping::Label(label) => Some(label.as_str()),
            _ => None,
        };
        match tree {
            Some(tree) => walk::walk(source, filter, None, functions, notes, tree),
            None => {
                let mut table = Table::new(cells, grouping, *traces, source.process_names());
                if let Grouping::Value(of) = grouping {
                    table.by = By::Value(source.values_of(of));
                }
                walk::walk(source, filter, label, functions, notes, &mut table);
            }
        }
        self.counts_memory |= source.has_memory();
        let Profile { grouping, functions, cells, notes, traces, .. } = self;
        source.add_counts(filter, &mut Counts { grouping, number: *traces, functions, cells, notes });
        self.traces += 1;
        self.settle();
    }

    /// Adds calls that were counted outside of traces: each function with its number of calls. Only
    /// for groups by function, symbol, module and file.
    pub fn add_counted(&mut self, counted: impl IntoIterator<Item = (Function, u64)>) {
        let Profile { grouping, functions, cells, notes, traces, .. } = self;
        let mut counts = Counts { grouping, number: *traces, functions, cells, notes };
        for (function, calls) in counted {
            counts.add_function(function, calls);
        }
        self.traces += 1;
        self.settle();
    }

    /// Adds another profile with the same grouping, by function.
    pub fn add(&mut self, other: &Profile) {
        for cell in &other.cells.all {
            let key = match &cell.key {
                Key::Function(number) => {
                    let Some(function) = other.functions.get(*number) else { continue };
                    Key::Function(self.functions.number(function.clone()))
                }
                key => key.clone(),
            };
            self.cells.add(key, &cell.sums);
        }
        self.traces += other.traces;
        self.notes.add(&other.notes);
        self.settle();
    }

    /// Updates the derived numbers.
    fn settle(&mut self) {
        if let Some(tree) = &self.tree {
            let mut cells = Cells::default();
            for node in (0..tree.nodes().len()).filter(|node| tree.nodes()[*node].sums.calls > 0) {
                cells.add(Key::Path(tree.path(node)), &tree.nodes()[node].sums);
            }
            if tree.further.calls > 0 {
                cells.add(Key::Path(Vec::new()), &tree.further);
            }
            self.cells = cells;
        }
        let sum = |of: fn(&Sums) -> u64| self.cells.all.iter().map(|cell| of(&cell.sums)).sum();
        (self.calls, self.unwound) = (sum(|sums| sums.calls), sum(|sums| sums.unwound));
    }

    /// Leaves the time in which threads waited out of all own times, as far as it is known. Returns
    /// whether anything is known.
    pub fn leave_out_blocked(&mut self) -> bool {
        let mut is_known = false;
        for Sums { own_ns, own_states, total_states, .. } in
            self.cells.all.iter_mut().map(|cell| &mut cell.sums)
        {
            is_known |= *total_states != StateTimes::default();
            *own_ns = own_ns.saturating_sub(own_states.blocked);
        }
        is_known
    }

    /// Whether its calls were counted and not recorded: it has no times.
    #[must_use]
    pub fn is_untimed(&self) -> bool {
        self.calls > 0 && self.cells.all.iter().all(|cell| cell.sums.untimed == cell.sums.calls)
    }

    /// Whether it has calls whose times were added up while they were counted.
    #[must_use]
    pub fn has_octaves(&self) -> bool {
        self.cells.all.iter().any(|cell| cell.sums.in_octaves > 0)
    }

    /// Memory allocated and freed in total, if that was counted.
    #[must_use]
    pub fn memory(&self) -> Option<Allocations> {
        let mut all = Allocations::default();
        self.cells.all.iter().for_each(|cell| all.add(cell.sums.own_memory));
        (!all.is_none()).then_some(all)
    }

    /// The calls that came since an earlier reading of the same process, which counts.
    #[must_use]
    pub fn since(&self, before: &Profile) -> Profile {
        let mut since = Profile::by(self.grouping.clone());
        let sums_before = |key: &Key| {
            let key = match key {
                Key::Function(number) => {
                    let identity = &self.functions.get(*number)?.identity;
                    Key::Function(before.functions.find(identity)?)
                }
                key => key.clone(),
            };
            before.cells.get(&key)
        };
        let none = Sums::default();
        for cell in &self.cells.all {
            let sums = cell.sums.since(sums_before(&cell.key).unwrap_or(&none));
            if sums.calls > 0 || sums.all_calls > 0 || sums.in_octaves > 0 || sums.has_memory() {
                since.cells.add(cell.key.clone(), &sums);
            }
        }
        since.functions = self.functions.clone();
        since.counts_memory = self.counts_memory;
        since.settle();
        since
    }

    /// The criterion by which it is grouped.
    #[must_use]
    pub fn grouping(&self) -> &Grouping {
        &self.grouping
    }

    /// The functions that occurred.
    #[must_use]
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    /// The tree, if it is grouped by path.
    #[must_use]
    pub fn tree(&self) -> Option<&Tree> {
        self.tree.as_ref()
    }

    /// How many groups there are.
    #[must_use]
    pub fn function_count(&self) -> usize {
        self.cells.all.len()
    }

    /// The groups with calls, sorted by `order`. The result is deterministic.
    #[must_use]
    pub fn rows(&self, order: Order) -> Vec<Row<'_>> {
        self.rows_if(order, |sums| sums.calls > 0 || sums.own_ns > 0 || sums.has_memory())
    }

    /// Like [`Profile::rows`], with groups whose calls were all overwritten or dropped, so that
    /// only their number is known.
    #[must_use]
    pub fn rows_of_all_calls(&self, order: Order) -> Vec<Row<'_>> {
        self.rows_if(order, |sums| {
            sums.calls > 0 || sums.own_ns > 0 || sums.all_calls > 0 || sums.has_memory()
        })
    }

    fn rows_if(&self, order: Order, is_shown: impl Fn(&Sums) -> bool) -> Vec<Row<'_>> {
        let cells = self.cells.all.iter().filter(|cell| is_shown(&cell.sums));
        let mut rows: Vec<_> = cells.map(|cell| Row { key: &cell.key, sums: &cell.sums }).collect();
        let function = |key: &Key| match key {
            Key::Function(number) => self.functions.get(*number).map(Function::order),
            _ => None,
        };
        rows.sort_by(|one, other| {
            let by_number = Reverse(order.number(one.sums)).cmp(&Reverse(order.number(other.sums)));
            by_number
                .then_with(|| function(one.key).cmp(&function(other.key)))
                .then_with(|| one.key.cmp(other.key))
        });
        rows
    }

    /// The first `count` functions in this order, with their names; functions whose number is 0 are
    /// left out.
    #[must_use]
    pub fn top(&self, order: Order, count: usize) -> Vec<FunctionRow> {
        let rows = self.rows(order).into_iter().filter(|row| order.number(row.sums) > 0);
        let row = |row: Row<'_>| {
            let Key::Function(number) = row.key else { return None };
            let Function { identity, name, symbols, .. } = self.functions.get(*number)?;
            let Sums { calls, total_ns, own_ns, untraced_at_most_ns, .. } = *row.sums;
            Some(FunctionRow {
                name: name.clone(),
                symbols: symbols.iter().cloned().collect(),
                module: identity.module.clone(),
                file: identity.file.clone(),
                line: identity.line,
                calls,
                total_ns,
                own_ns,
                tail_at_most_ns: untraced_at_most_ns,
            })
        };
        rows.filter_map(row).take(count).collect()
    }
}

//! Expressions over the columns of a call, and their values as SQLite has them.

use std::cell::RefCell;
use std::cmp::Ordering;

use everycall_export::Row;
use regex::Regex;
use rustc_hash::FxHashMap;

/// A value. Texts have numbers, each text one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cell {
    Null,
    Integer(i64),
    Text(u32),
}

impl Cell {
    pub(super) const TRUE: Cell = Cell::Integer(1);
    pub(super) const FALSE: Cell = Cell::Integer(0);

    fn of(is_true: bool) -> Cell {
        if is_true { Cell::TRUE } else { Cell::FALSE }
    }

    /// As a condition; `None` if it is null.
    pub(super) fn truth(self) -> Option<bool> {
        match self {
            Cell::Integer(value) => Some(value != 0),
            Cell::Null | Cell::Text(_) => None,
        }
    }

    pub(super) fn of_number(value: Option<i64>) -> Cell {
        value.map_or(Cell::Null, Cell::Integer)
    }
}

/// Texts and their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    numbers: FxHashMap<String, u32>,
    texts: Vec<String>,
}

impl Texts {
    /// The value of a text.
    pub(super) fn cell(&mut self, text: &str) -> Cell {
        if let Some(number) = self.numbers.get(text) {
            return Cell::Text(*number);
        }
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        Cell::Text(number)
    }

    pub(super) fn maybe(&mut self, text: Option<&str>) -> Cell {
        text.map_or(Cell::Null, |text| self.cell(text))
    }

    pub(super) fn text(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or("", String::as_str)
    }

    /// The order that SQLite has: null, numbers, texts by their bytes.
    pub(super) fn compare(&self, left: Cell, right: Cell) -> Ordering {
        match (left, right) {
            (Cell::Integer(left), Cell::Integer(right)) => left.cmp(&right),
            (Cell::Text(left), Cell::Text(right)) => self.text(left).cmp(self.text(right)),
            _ => rank(left).cmp(&rank(right)),
        }
    }
}

fn rank(cell: Cell) -> u8 {
    match cell {
        Cell::Null => 0,
        Cell::Integer(_) => 1,
        Cell::Text(_) => 2,
    }
}

/// A value that SQLite treats in its own way, such as a sum that is no 64-bit integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Surprise;

/// A column of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Pid,
    Process,
    Tid,
    Thread,
    Trace,
    Function,
    Module,
    File,
    Line,
    Id,
    Parent,
    Depth,
    Recursion,
    Start,
    Duration,
    DurationLow,
    DurationHigh,
    Own,
    Remarks,
}

/// Columns by their names.
const COLUMNS: [(&str, Column); 19] = [
    ("pid", Column::Pid),
    ("process", Column::Process),
    ("tid", Column::Tid),
    ("thread", Column::Thread),
    ("trace", Column::Trace),
    ("function", Column::Function),
    ("module", Column::Module),
    ("file", Column::File),
    ("line", Column::Line),
    ("id", Column::Id),
    ("parent", Column::Parent),
    ("depth", Column::Depth),
    ("recursion", Column::Recursion),
    ("start_ns", Column::Start),
    ("duration_ns", Column::Duration),
    ("duration_low_ns", Column::DurationLow),
    ("duration_high_ns", Column::DurationHigh),
    ("own_ns", Column::Own),
    ("remarks", Column::Remarks),
];

impl Column {
    /// The column of a name, in upper or lower case; not all have a place here.
    pub(super) fn named(name: &str) -> Option<Column> {
        COLUMNS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, column)| *column)
    }

    pub(super) fn kind(self) -> Kind {
        use Column::{File, Function, Module, Process, Remarks, Thread, Trace};
        match self {
            Process | Thread | Trace | Function | Module | File | Remarks => Kind::Text,
            _ => Kind::Integer,
        }
    }

    fn depends_on(self) -> Depends {
        use Column::{File, Function, Line, Module, Pid, Process, Thread, Tid, Trace};
        match self {
            Pid | Process | Tid | Thread | Trace => Depends::Lane,
            Function | Module | File | Line => Depends::Function,
            _ => Depends::Call,
        }
    }
}

/// The type that all values of an expression have that aren't null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Integer,
    Text,
}

/// Facts that decide the value of an expression; each one includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Depends {
    Nothing,
    /// The thread.
    Lane,
    /// The thread and the function.
    Function,
    Call,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        }
    }
}

/// A pattern, and which texts are known to match.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    text: String,
    regex: Regex,
    known: RefCell<FxHashMap<u32, bool>>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Pattern {
    /// `text` tells patterns apart.
    pub(super) fn new(text: String, regex: Regex) -> Pattern {
        Pattern { text, regex, known: RefCell::default() }
    }

    fn matches(&self, number: u32, texts: &Texts) -> bool {
        let mut known = self.known.borrow_mut();
        *known.entry(number).or_insert_with(|| self.regex.is_match(texts.text(number)))
    }
}

/// An expression. Those of conditions are integers: 0, 1 or null.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expression {
    Column(Column),
    Constant(Cell),
    Negative(Box<Expression>),
    Arithmetic(Arithmetic, Box<(Expression, Expression)>),
    Compare(Comparison, Box<(Expression, Expression)>),
    /// `is`: null is like null.
    Same(Box<(Expression, Expression)>),
    And(Box<(Expression, Expression)>),
    Or(Box<(Expression, Expression)>),
    Not(Box<Expression>),
    OneOf(Box<Expression>, Vec<Cell>),
    Matches(Box<Expression>, Pattern),
    /// The value behind the first condition that is true; the last one has none.
    Case(Vec<(Expression, Expression)>, Box<Expression>),
    /// The first that isn't null.
    First(Vec<Expression>),
}

/// A call, in the thread and of the function that it has.
pub(super) struct Call<'a> {
    pub(super) row: &'a Row,
    pub(super) lane: &'a LaneCells,
    pub(super) function: &'a FunctionCells,
    /// The value of the column `remarks`, if it is asked for.
    pub(super) remarks: Cell,
}

/// Columns that all calls of a thread share.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneCells {
    pub(super) pid: i64,
    pub(super) tid: i64,
    pub(super) process: Cell,
    pub(super) thread: Cell,
    pub(super) trace: Cell,
}

/// Columns that all calls of a function share.
#[derive(Clone, Copy, Debug)]
pub(super) struct FunctionCells {
    pub(super) name: Cell,
    pub(super) module: Cell,
    pub(super) file: Cell,
    pub(super) line: Cell,
}

impl FunctionCells {
    pub(super) const NONE: FunctionCells =
        FunctionCells { name: Cell::Null, module: Cell::Null, file: Cell::Null, line: Cell::Null };
}

impl Call<'_> {
    #[inline]
    fn column(&self, column: Column) -> Cell {
        let row = self.row;
        match column {
            Column::Pid => Cell::Integer(self.lane.pid),
            Column::Process => self.lane.process,
            Column::Tid => Cell::Integer(self.lane.tid),
            Column::Thread => self.lane.thread,
            Column::Trace => self.lane.trace,
            Column::Function => self.function.name,
            Column::Module => self.function.module,
            Column::File => self.function.file,
            Column::Line => self.function.line,
            Column::Id => Cell::of_number(row.id),
            Column::Parent => Cell::of_number(row.parent),
            Column::Depth => Cell::Integer(row.depth.into()),
            Column::Recursion => Cell::of_number(row.recursion.map(i64::from)),
            Column::Start => Cell::Integer(row.start_ns),
            Column::Duration => Cell::of_number(row.duration_ns),
            Column::DurationLow => Cell::of_number(row.duration_low_ns.or(row.duration_ns)),
            Column::DurationHigh => Cell::of_number(row.duration_high_ns.or(row.duration_ns)),
            Column::Own => Cell::of_number(row.own_ns),
            Column::Remarks => self.remarks,
        }
    }
}

impl Expression {
    /// Its value for a call.
    #[inline]
    pub(super) fn value(&self, call: &Call<'_>, texts: &Texts) -> Result<Cell, Surprise> {
        match self {
            Expression::Column(column) => Ok(call.column(*column)),
            Expression::Constant(cell) => Ok(*cell),
            other => other.composed(call, texts),
        }
    }

    fn composed(&self, call: &Call<'_>, texts: &Texts) -> Result<Cell, Surprise> {
        let truth = |part: &Expression| Ok(part.value(call, texts)?.truth());
        Ok(match self {
            Expression::Column(column) => call.column(*column),
            Expression::Constant(cell) => *cell,
            Expression::Negative(part) => match part.value(call, texts)? {
                Cell::Integer(value) => Cell::Integer(value.checked_neg().ok_or(Surprise)?),
                _ => Cell::Null,
            },
            Expression::Arithmetic(how, parts) => {
                let (left, right) = (parts.0.value(call, texts)?, parts.1.value(call, texts)?);
                let (Cell::Integer(left), Cell::Integer(right)) = (left, right) else {
                    return Ok(Cell::Null);
                };
                let result = match how {
                    Arithmetic::Add => left.checked_add(right),
                    Arithmetic::Subtract => left.checked_sub(right),
                    Arithmetic::Multiply => left.checked_mul(right),
                    Arithmetic::Divide | Arithmetic::Remainder if right == 0 => return Ok(Cell::Null),
                    Arithmetic::Divide => left.checked_div(right),
                    Arithmetic::Remainder => left.checked_rem(right),
                };
                Cell::Integer(result.ok_or(Surprise)?)
            }
            Expression::Compare(how, parts) => {
                let (left, right) = (parts.0.value(call, texts)?, parts.1.value(call, texts)?);
                if left == Cell::Null || right == Cell::Null {
                    return Ok(Cell::Null);
                }
                let is_same = left == right;
                Cell::of(match how {
                    Comparison::Equal => is_same,
                    Comparison::NotEqual => !is_same,
                    _ => how.holds(texts.compare(left, right)),
                })
            }
            Expression::Same(parts) => Cell::of(parts.0.value(call, texts)? == parts.1.value(call, texts)?),
            Expression::And(parts) => match truth(&parts.0)? {
                Some(false) => Cell::FALSE,
                left => match (left, truth(&parts.1)?) {
                    (_, Some(false)) => Cell::FALSE,
                    (Some(true), Some(true)) => Cell::TRUE,
                    _ => Cell::Null,
                },
            },
            Expression::Or(parts) => match truth(&parts.0)? {
                Some(true) => Cell::TRUE,
                left => match (left, truth(&parts.1)?) {
                    (_, Some(true)) => Cell::TRUE,
                    (Some(false), Some(false)) => Cell::FALSE,
                    _ => Cell::Null,
                },
            },
            Expression::Not(part) => truth(part)?.map_or(Cell::Null, |is_true| Cell::of(!is_true)),
            Expression::OneOf(part, cells) => match part.value(call, texts)? {
                Cell::Null if !cells.is_empty() => Cell::Null,
                cell => Cell::of(cells.contains(&cell)),
            },
            Expression::Matches(part, pattern) => match part.value(call, texts)? {
                Cell::Text(number) => Cell::of(pattern.matches(number, texts)),
                _ => Cell::Null,
            },
            Expression::Case(cases, otherwise) => {
                for (condition, result) in cases {
                    if truth(condition)? == Some(true) {
                        return result.value(call, texts);
                    }
                }
                otherwise.value(call, texts)?
            }
            Expression::First(parts) => {
                for part in parts {
                    let cell = part.value(call, texts)?;
                    if cell != Cell::Null {
                        return Ok(cell);
                    }
                }
                Cell::Null
            }
        })
    }

    /// The facts that decide its value.
    pub(super) fn depends_on(&self) -> Depends {
        let both = |parts: &(Expression, Expression)| parts.0.depends_on().max(parts.1.depends_on());
        match self {
            Expression::Column(column) => column.depends_on(),
            Expression::Constant(_) => Depends::Nothing,
            Expression::Negative(part)
            | Expression::Not(part)
            | Expression::OneOf(part, _)
            | Expression::Matches(part, _) => part.depends_on(),
            Expression::Arithmetic(_, parts)
            | Expression::Compare(_, parts)
            | Expression::Same(parts)
            | Expression::And(parts)
            | Expression::Or(parts) => both(parts),
            Expression::Case(cases, otherwise) => {
                cases.iter().map(both).fold(otherwise.depends_on(), Ord::max)
            }
            Expression::First(parts) => {
                parts.iter().map(Expression::depends_on).fold(Depends::Nothing, Ord::max)
            }
        }
    }

    /// Whether it has a column.
    pub(super) fn has(&self, column: Column) -> bool {
        let both = |parts: &(Expression, Expression)| parts.0.has(column) || parts.1.has(column);
        match self {
            Expression::Column(one) => *one == column,
            Expression::Constant(_) => false,
            Expression::Negative(part)
            | Expression::Not(part)
            | Expression::OneOf(part, _)
            | Expression::Matches(part, _) => part.has(column),
            Expression::Arithmetic(_, parts)
            | Expression::Compare(_, parts)
            | Expression::Same(parts)
            | Expression::And(parts)
            | Expression::Or(parts) => both(parts),
            Expression::Case(cases, otherwise) => cases.iter().any(both) || otherwise.has(column),
            Expression::First(parts) => parts.iter().any(|part| part.has(column)),
        }
    }
}

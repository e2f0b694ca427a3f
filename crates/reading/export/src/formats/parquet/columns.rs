//! Columns of a group of rows, as they are gathered and written.

use std::hash::Hash;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::errors::Result;
use parquet::file::statistics::Statistics;
use parquet::schema::types::{ColumnDescPtr, Type};
use rustc_hash::FxHashMap;

use super::coded::{Chunk, Group, Levels, Packer, Values, put_text};
use super::deltas::{Number, put_deltas};

/// The number of a text within a group of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TextId(u32);

/// The subject of a row: most often a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Subject {
    pub(super) name: Option<TextId>,
    pub(super) module: Option<TextId>,
    pub(super) file: Option<TextId>,
    pub(super) line: Option<i32>,
}

/// The number of a subject within a group of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SubjectId(u32);

/// Tables that columns refer to: texts and subjects of a group of rows, each once.
#[derive(Default)]
pub(super) struct Context {
    /// How many rows these are.
    pub(super) rows: usize,
    pub(super) texts: Texts,
    ids: FxHashMap<Subject, SubjectId>,
    subjects: Vec<Subject>,
    /// That of each row.
    of_rows: Vec<SubjectId>,
}

impl Context {
    pub(super) fn subject(&mut self, subject: Subject) -> SubjectId {
        let next = SubjectId(u32::try_from(self.subjects.len()).unwrap_or(u32::MAX));
        *self.ids.entry(subject).or_insert_with(|| {
            self.subjects.push(subject);
            next
        })
    }

    /// Another row, about this.
    #[inline]
    pub(super) fn push(&mut self, subject: SubjectId) {
        self.rows += 1;
        self.of_rows.push(subject);
    }

    pub(super) fn clear(&mut self) {
        self.rows = 0;
        self.texts.clear();
        self.ids.clear();
        self.subjects.clear();
        self.of_rows.clear();
    }
}

/// The texts of a group of rows, each once.
#[derive(Default)]
pub(super) struct Texts {
    ids: FxHashMap<String, TextId>,
    texts: Vec<String>,
}

impl Texts {
    pub(super) fn id(&mut self, text: &str) -> TextId {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        // Memory is exhausted long before the numbers are.
        let id = TextId(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        self.texts.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }

    fn of(&self, id: TextId) -> &str {
        self.texts.get(id.0 as usize).map_or("", String::as_str)
    }

    fn clear(&mut self) {
        self.ids.clear();
        self.texts.clear();
    }
}

/// How a column is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// By how much each value differs from the one before.
    Deltas,
    /// By the numbers of the different values.
    Numbered,
}

/// Which rows of a column have a value. What most rows are takes no memory and no time.
enum Filled {
    /// Each.
    All,
    /// Each but these.
    AllBut(Vec<u32>),
    /// None but these.
    Only(Vec<u32>),
}

/// A column: values, and which rows have one.
pub(super) struct Column<V> {
    form: Form,
    values: Vec<V>,
    filled: Filled,
    /// Whether readers leave out groups of rows by it.
    has_statistics: bool,
}

impl<V> Column<V> {
    /// A column in which each row has a value.
    pub(super) fn required() -> Self {
        Column { form: Form::Deltas, values: Vec::new(), filled: Filled::All, has_statistics: false }
    }

    /// A column in which rows may have none.
    pub(super) fn optional() -> Self {
        Column { filled: Filled::AllBut(Vec::new()), ..Column::required() }
    }

    /// A column in which few rows have a value.
    pub(super) fn rare() -> Self {
        Column { form: Form::Numbered, ..Column::mostly_empty() }
    }

    /// A column in which most often no row has a value, else each.
    pub(super) fn mostly_empty() -> Self {
        Column { filled: Filled::Only(Vec::new()), ..Column::required() }
    }

    /// Adds minima and maxima of each group of rows, by which readers leave groups out.
    pub(super) fn with_statistics(self) -> Self {
        Column { has_statistics: true, ..self }
    }

    /// The value of the next row, in a column in which each has one.
    #[inline]
    pub(super) fn push(&mut self, value: V) {
        self.values.push(value);
    }

    /// The value of this row, if it has one.
    #[inline]
    pub(super) fn maybe(&mut self, row: u32, value: Option<V>) {
        match (&mut self.filled, value.is_some()) {
            (Filled::AllBut(rows), false) | (Filled::Only(rows), true) => rows.push(row),
            _ => {}
        }
        if let Some(value) = value {
            self.values.push(value);
        }
    }

    fn levels(&self, rows: usize) -> Levels {
        let (others, level) = match &self.filled {
            Filled::All => return Levels::Required,
            Filled::AllBut(others) => (others, 0),
            Filled::Only(others) => (others, 1),
        };
        if others.is_empty() {
            return Levels::Same(1 - level);
        }
        let mut levels = vec![1 - level; rows];
        for row in others {
            if let Some(of) = levels.get_mut(*row as usize) {
                *of = level;
            }
        }
        Levels::Each(levels)
    }

    fn forget(&mut self) {
        self.values.clear();
        if let Filled::AllBut(rows) | Filled::Only(rows) = &mut self.filled {
            rows.clear();
        }
    }

    fn declared_as(&self, name: &str, physical: Physical, logical: Option<LogicalType>) -> Result<Type> {
        let repetition = match self.filled {
            Filled::All => Repetition::REQUIRED,
            Filled::AllBut(_) | Filled::Only(_) => Repetition::OPTIONAL,
        };
        declared_as(name, repetition, physical, logical)
    }
}

fn declared_as(
    name: &str,
    repetition: Repetition,
    physical: Physical,
    logical: Option<LogicalType>,
) -> Result<Type> {
    Type::primitive_type_builder(name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()
}

impl<V: Number> Column<V> {
    fn write_deltas(&self, rows: usize, into: &mut Output<'_, '_>) -> Result<()> {
        let mut bytes = Vec::new();
        put_deltas(&mut bytes, &self.values);
        let nulls = (rows - self.values.len()) as u64;
        let chunk = Chunk {
            rows,
            levels: self.levels(rows),
            statistics: self.has_statistics.then(|| V::statistics(&self.values, nulls)),
            values: Values::Deltas(&bytes),
        };
        into.append(chunk)
    }
}

/// Different values of a column in Parquet's plain form, and the number of each.
struct Dictionary<K> {
    numbers: FxHashMap<K, u32>,
    bytes: Vec<u8>,
}

impl<K: Eq + Hash> Dictionary<K> {
    fn new() -> Self {
        Dictionary { numbers: FxHashMap::default(), bytes: Vec::new() }
    }

    /// The number of a value, which is put into the dictionary if it is new.
    fn number(&mut self, value: K, put: impl FnOnce(&mut Vec<u8>, &K)) -> u32 {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(value).or_insert_with_key(|value| {
            put(&mut self.bytes, value);
            next
        })
    }

    fn values<'c>(&'c self, codes: &'c [u32]) -> Values<'c> {
        Values::Numbered { dictionary: &self.bytes, distinct: self.numbers.len(), codes }
    }
}

impl<V: Copy> Column<V> {
    fn write_numbered<K: Eq + Hash>(
        &self,
        rows: usize,
        key: impl Fn(V) -> K,
        put: impl Fn(&mut Vec<u8>, &K),
        into: &mut Output<'_, '_>,
    ) -> Result<()> {
        let mut dictionary = Dictionary::new();
        let codes: Vec<u32> = self.values.iter().map(|value| dictionary.number(key(*value), &put)).collect();
        let values = dictionary.values(&codes);
        into.append(Chunk { rows, levels: self.levels(rows), statistics: None, values })
    }
}

/// A column in which the values of many rows in turn are the same; each has one.
pub(super) struct Runs<V> {
    /// The value of the rows that follow.
    current: V,
    /// How many rows have each value.
    runs: Vec<(V, usize)>,
    /// How many rows these are.
    covered: usize,
    has_statistics: bool,
}

impl<V: Clone + PartialEq> Runs<V> {
    pub(super) fn new(value: V) -> Self {
        Runs { current: value, runs: Vec::new(), covered: 0, has_statistics: false }
    }

    /// Adds minima and maxima of each group of rows.
    pub(super) fn with_statistics(self) -> Self {
        Runs { has_statistics: true, ..self }
    }

    /// Rows from this one on have the value.
    #[inline]
    pub(super) fn set(&mut self, row: usize, value: V) {
        if value != self.current {
            self.end(row);
            self.current = value;
        }
    }

    /// So many rows have values now.
    pub(super) fn end(&mut self, rows: usize) {
        if rows > self.covered {
            self.runs.push((self.current.clone(), rows - self.covered));
            self.covered = rows;
        }
    }
}

/// The type of such a column's values: texts, if an implementation says nothing else.
trait Plain: Eq + Hash + Clone {
    const PHYSICAL: Physical = Physical::BYTE_ARRAY;

    fn logical() -> Option<LogicalType> {
        Some(LogicalType::String)
    }

    fn put(&self, bytes: &mut Vec<u8>);

    fn statistics(_: &[(Self, usize)]) -> Option<Statistics> {
        None
    }
}

impl Plain for i64 {
    const PHYSICAL: Physical = Physical::INT64;

    fn logical() -> Option<LogicalType> {
        None
    }

    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.to_le_bytes());
    }

    fn statistics(runs: &[(i64, usize)]) -> Option<Statistics> {
        let values: Vec<i64> = runs.iter().map(|(value, _)| *value).collect();
        Some(<i64 as Number>::statistics(&values, 0))
    }
}

impl Plain for Arc<str> {
    fn put(&self, bytes: &mut Vec<u8>) {
        put_text(bytes, self);
    }
}

impl Plain for &'static str {
    fn put(&self, bytes: &mut Vec<u8>) {
        put_text(bytes, self);
    }
}

/// A column that says something of the rows' subjects.
pub(super) enum OfSubject {
    Text(fn(&Subject) -> Option<TextId>),
    Line(fn(&Subject) -> Option<i32>),
}

/// Where a column is written.
pub(super) struct Output<'i, 'g> {
    pub(super) packer: &'i mut Packer,
    pub(super) descriptor: &'i ColumnDescPtr,
    pub(super) group: &'i mut Group<'g>,
}

impl Output<'_, '_> {
    fn append(&mut self, chunk: Chunk<'_>) -> Result<()> {
        chunk.append(self.packer, self.descriptor, self.group)
    }
}

/// A column of any type.
pub(super) trait AnyColumn {
    /// Its declaration.
    fn declared(&self, name: &str) -> Result<Type>;

    /// Writes its values as the next column of a group of rows.
    fn write(&mut self, context: &Context, into: &mut Output<'_, '_>) -> Result<()>;

    /// Forgets its values.
    fn clear(&mut self);
}

impl AnyColumn for Column<i64> {
    fn declared(&self, name: &str) -> Result<Type> {
        self.declared_as(name, Physical::INT64, None)
    }

    fn write(&mut self, context: &Context, into: &mut Output<'_, '_>) -> Result<()> {
        match self.form {
            Form::Deltas => self.write_deltas(context.rows, into),
            Form::Numbered => {
                self.write_numbered(context.rows, |value| value, |bytes, value| value.put(bytes), into)
            }
        }
    }

    fn clear(&mut self) {
        self.forget();
    }
}

impl AnyColumn for Column<i32> {
    fn declared(&self, name: &str) -> Result<Type> {
        self.declared_as(name, Physical::INT32, None)
    }

    fn write(&mut self, context: &Context, into: &mut Output<'_, '_>) -> Result<()> {
        self.write_deltas(context.rows, into)
    }

    fn clear(&mut self) {
        self.forget();
    }
}

impl AnyColumn for Column<f64> {
    fn declared(&self, name: &str) -> Result<Type> {
        self.declared_as(name, Physical::DOUBLE, None)
    }

    fn write(&mut self, context: &Context, into: &mut Output<'_, '_>) -> Result<()> {
        let put = |bytes: &mut Vec<u8>, bits: &u64| bytes.extend_from_slice(&bits.to_le_bytes());
        self.write_numbered(context.rows, f64::to_bits, put, into)
    }

    fn clear(&mut self) {
        self.forget();
    }
}

impl AnyColumn for Column<TextId> {
    fn declared(&self, name: &str) -> Result<Type> {
        self.declared_as(name, Physical::BYTE_ARRAY, Some(LogicalType::String))
    }

    fn write(&mut self, context: &Context, into: &mut Output<'_, '_>) -> Result<()> {
        let put = |bytes: &mut Vec<u8>, id: &TextId| put_text(bytes, context.texts.of(*id));
        self.write_numbered(context.rows, |id| id, put, into)
    }

    fn clear(&mut self) {
        self.forget();
    }
}

impl<V: Plain> AnyColumn for Runs<V> {
    fn declared(&self, name: &str) -> Result<Type> {
        declared_as(name, Repetition::REQUIRED, V::PHYSICAL, V::logical())
    }

    fn write(&mut self, context: &Context, into: &mut Output<'_, '_>) -> Result<()> {
        self.end(context.rows);
        let mut dictionary = Dictionary::new();
        let mut codes = Vec::with_capacity(context.rows);
        for (value, count) in &self.runs {
            let code = dictionary.number(value.clone(), |bytes, value| value.put(bytes));
            codes.resize(codes.len() + count, code);
        }
        let statistics = if self.has_statistics { V::statistics(&self.runs) } else { None };
        let values = dictionary.values(&codes);
        into.append(Chunk { rows: context.rows, levels: Levels::Required, statistics, values })
    }

    fn clear(&mut self) {
        (self.covered, self.runs) = (0, Vec::new());
    }
}

impl AnyColumn for OfSubject {
    fn declared(&self, name: &str) -> Result<Type> {
        let (physical, logical) = match self {
            OfSubject::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            OfSubject::Line(_) => (Physical::INT32, None),
        };
        declared_as(name, Repetition::OPTIONAL, physical, logical)
    }

    fn write(&mut self, context: &Context, into: &mut Output<'_, '_>) -> Result<()> {
        match self {
            OfSubject::Text(of) => {
                write_of_subjects(context, of, |bytes, id| put_text(bytes, context.texts.of(*id)), into)
            }
            OfSubject::Line(of) => write_of_subjects(
                context,
                of,
                |bytes, line| bytes.extend_from_slice(&line.to_le_bytes()),
                into,
            ),
        }
    }

    fn clear(&mut self) {}
}

fn write_of_subjects<K: Eq + Hash>(
    context: &Context,
    of: &impl Fn(&Subject) -> Option<K>,
    put: impl Fn(&mut Vec<u8>, &K),
    into: &mut Output<'_, '_>,
) -> Result<()> {
    let mut dictionary = Dictionary::new();
    let of_subjects: Vec<Option<u32>> = context
        .subjects
        .iter()
        .map(|subject| of(subject).map(|value| dictionary.number(value, &put)))
        .collect();
    let of_rows = || context.of_rows.iter().map(|id| of_subjects.get(id.0 as usize).copied().flatten());
    let levels = match (dictionary.numbers.is_empty(), of_subjects.iter().all(Option::is_some)) {
        (true, _) => Levels::Same(0),
        (false, true) => Levels::Same(1),
        (false, false) => Levels::Each(of_rows().map(|code| u32::from(code.is_some())).collect()),
    };
    let codes: Vec<u32> = of_rows().flatten().collect();
    let values = dictionary.values(&codes);
    into.append(Chunk { rows: context.rows, levels, statistics: None, values })
}

//! Columns of a group of rows, as they are gathered and written.

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::errors::Result;
use parquet::schema::types::{ColumnDescPtr, Type};
use rustc_hash::FxHashMap;

use super::coded::{Chunk, Group, Values, put_text};
use super::deltas::{Number, put_deltas};

/// The number of a text within a group of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TextId(u32);

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

    pub(super) fn clear(&mut self) {
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

    /// The same with minima and maxima of each group of rows, by which readers leave groups out.
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

    /// 1 for each row with a value, 0 for each without; `None` if each row has one.
    fn levels(&self, rows: usize) -> Option<Vec<u32>> {
        let (others, level) = match &self.filled {
            Filled::All => return None,
            Filled::AllBut(others) => (others, 0),
            Filled::Only(others) => (others, 1),
        };
        let mut levels = vec![1 - level; rows];
        for row in others {
            if let Some(of) = levels.get_mut(*row as usize) {
                *of = level;
            }
        }
        Some(levels)
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
        Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()
    }
}

impl<V: Number> Column<V> {
    fn write_deltas(&self, rows: usize, descriptor: &ColumnDescPtr, group: &mut Group<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        put_deltas(&mut bytes, &self.values);
        let nulls = (rows - self.values.len()) as u64;
        let chunk = Chunk {
            rows,
            levels: self.levels(rows),
            statistics: self.has_statistics.then(|| V::statistics(&self.values, nulls)),
            values: Values::Deltas(&bytes),
        };
        chunk.append(descriptor, group)
    }
}

impl<V: Copy> Column<V> {
    fn write_numbered(
        &self,
        rows: usize,
        plain: impl Fn(V) -> [u8; 8],
        descriptor: &ColumnDescPtr,
        group: &mut Group<'_>,
    ) -> Result<()> {
        let mut numbers = FxHashMap::default();
        let mut dictionary = Vec::new();
        let coded = self.values.iter().map(|value| {
            let bytes = plain(*value);
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            *numbers.entry(bytes).or_insert_with(|| {
                dictionary.extend_from_slice(&bytes);
                next
            })
        });
        let codes: Vec<u32> = coded.collect();
        let distinct = numbers.len();
        let values = Values::Numbered { dictionary: &dictionary, distinct, codes: &codes };
        let chunk = Chunk { rows, levels: self.levels(rows), statistics: None, values };
        chunk.append(descriptor, group)
    }
}

/// A column of any type.
pub(super) trait AnyColumn {
    /// Its declaration.
    fn declared(&self, name: &str) -> Result<Type>;

    /// Writes its values as the next column of a group of so many rows.
    fn write(
        &self,
        rows: usize,
        texts: &Texts,
        descriptor: &ColumnDescPtr,
        group: &mut Group<'_>,
    ) -> Result<()>;

    /// Forgets its values.
    fn clear(&mut self);
}

impl AnyColumn for Column<i64> {
    fn declared(&self, name: &str) -> Result<Type> {
        self.declared_as(name, Physical::INT64, None)
    }

    fn write(&self, rows: usize, _: &Texts, descriptor: &ColumnDescPtr, group: &mut Group<'_>) -> Result<()> {
        match self.form {
            Form::Deltas => self.write_deltas(rows, descriptor, group),
            Form::Numbered => self.write_numbered(rows, |value| value.to_le_bytes(), descriptor, group),
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

    fn write(&self, rows: usize, _: &Texts, descriptor: &ColumnDescPtr, group: &mut Group<'_>) -> Result<()> {
        self.write_deltas(rows, descriptor, group)
    }

    fn clear(&mut self) {
        self.forget();
    }
}

impl AnyColumn for Column<f64> {
    fn declared(&self, name: &str) -> Result<Type> {
        self.declared_as(name, Physical::DOUBLE, None)
    }

    fn write(&self, rows: usize, _: &Texts, descriptor: &ColumnDescPtr, group: &mut Group<'_>) -> Result<()> {
        self.write_numbered(rows, |value| value.to_le_bytes(), descriptor, group)
    }

    fn clear(&mut self) {
        self.forget();
    }
}

impl AnyColumn for Column<TextId> {
    fn declared(&self, name: &str) -> Result<Type> {
        self.declared_as(name, Physical::BYTE_ARRAY, Some(LogicalType::String))
    }

    fn write(
        &self,
        rows: usize,
        texts: &Texts,
        descriptor: &ColumnDescPtr,
        group: &mut Group<'_>,
    ) -> Result<()> {
        let mut codes = vec![None; texts.texts.len()];
        let (mut dictionary, mut distinct) = (Vec::new(), 0);
        let coded = self.values.iter().filter_map(|id| {
            let code = codes.get_mut(id.0 as usize)?;
            Some(*code.get_or_insert_with(|| {
                put_text(&mut dictionary, &texts.texts[id.0 as usize]);
                distinct += 1;
                distinct - 1
            }))
        });
        let codes: Vec<u32> = coded.collect();
        let distinct = distinct as usize;
        let values = Values::Numbered { dictionary: &dictionary, distinct, codes: &codes };
        let chunk = Chunk { rows, levels: self.levels(rows), statistics: None, values };
        chunk.append(descriptor, group)
    }

    fn clear(&mut self) {
        self.forget();
    }
}

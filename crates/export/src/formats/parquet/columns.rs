//! Columns of a group of rows, as they are gathered and written.

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::schema::types::{ColumnDescPtr, Type};
use rustc_hash::FxHashMap;

use super::coded::{Chunk, Group, put_text};

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

/// A column: values, and which rows have one.
pub(super) struct Column<V> {
    form: Form,
    values: Vec<V>,
    /// 1 where a row has a value, 0 where it has none; `None` if each row has one.
    levels: Option<Vec<i16>>,
}

impl<V> Column<V> {
    /// A column in which each row has a value.
    pub(super) fn required() -> Self {
        Column { form: Form::Deltas, values: Vec::new(), levels: None }
    }

    /// A column in which rows may have none.
    pub(super) fn optional() -> Self {
        Column { form: Form::Deltas, values: Vec::new(), levels: Some(Vec::new()) }
    }

    /// A column in which few rows have a value.
    pub(super) fn rare() -> Self {
        Column { form: Form::Numbered, ..Column::optional() }
    }

    /// The value of the next row.
    #[inline]
    pub(super) fn push(&mut self, value: V) {
        self.values.push(value);
        if let Some(levels) = &mut self.levels {
            levels.push(1);
        }
    }

    /// The value of the next row, if it has one.
    #[inline]
    pub(super) fn maybe(&mut self, value: Option<V>) {
        if let Some(levels) = &mut self.levels {
            levels.push(i16::from(value.is_some()));
        }
        self.values.extend(value);
    }

    fn forget(&mut self) {
        self.values.clear();
        self.levels.iter_mut().for_each(Vec::clear);
    }

    fn declared_as(&self, name: &str, physical: Physical, logical: Option<LogicalType>) -> Result<Type> {
        let repetition = if self.levels.is_some() { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()
    }

    fn write_as<T: DataType<T = V>>(&self, group: &mut Group<'_>) -> Result<()> {
        let Some(mut to) = group.next_column()? else { return Ok(()) };
        to.typed::<T>().write_batch(&self.values, self.levels.as_deref(), None)?;
        to.close()
    }
}

impl<V: Copy> Column<V> {
    fn write_numbered(
        &self,
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
        let chunk = Chunk {
            dictionary: &dictionary,
            distinct: numbers.len(),
            codes: &codes,
            levels: self.levels.as_deref(),
        };
        chunk.append(descriptor, group)
    }
}

/// A column of any type.
pub(super) trait AnyColumn {
    /// Its declaration.
    fn declared(&self, name: &str) -> Result<Type>;

    /// Writes its values as the next column of a group.
    fn write(&self, texts: &Texts, descriptor: &ColumnDescPtr, group: &mut Group<'_>) -> Result<()>;

    /// Forgets its values.
    fn clear(&mut self);
}

impl AnyColumn for Column<i64> {
    fn declared(&self, name: &str) -> Result<Type> {
        self.declared_as(name, Physical::INT64, None)
    }

    fn write(&self, _: &Texts, descriptor: &ColumnDescPtr, group: &mut Group<'_>) -> Result<()> {
        match self.form {
            Form::Deltas => self.write_as::<Int64Type>(group),
            Form::Numbered => self.write_numbered(|value| value.to_le_bytes(), descriptor, group),
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

    fn write(&self, _: &Texts, _: &ColumnDescPtr, group: &mut Group<'_>) -> Result<()> {
        self.write_as::<Int32Type>(group)
    }

    fn clear(&mut self) {
        self.forget();
    }
}

impl AnyColumn for Column<f64> {
    fn declared(&self, name: &str) -> Result<Type> {
        self.declared_as(name, Physical::DOUBLE, None)
    }

    fn write(&self, _: &Texts, descriptor: &ColumnDescPtr, group: &mut Group<'_>) -> Result<()> {
        self.write_numbered(|value| value.to_le_bytes(), descriptor, group)
    }

    fn clear(&mut self) {
        self.forget();
    }
}

impl AnyColumn for Column<TextId> {
    fn declared(&self, name: &str) -> Result<Type> {
        self.declared_as(name, Physical::BYTE_ARRAY, Some(LogicalType::String))
    }

    fn write(&self, texts: &Texts, descriptor: &ColumnDescPtr, group: &mut Group<'_>) -> Result<()> {
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
        let chunk = Chunk {
            dictionary: &dictionary,
            distinct: distinct as usize,
            codes: &codes,
            levels: self.levels.as_deref(),
        };
        chunk.append(descriptor, group)
    }

    fn clear(&mut self) {
        self.forget();
    }
}

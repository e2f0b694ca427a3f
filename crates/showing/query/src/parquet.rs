//! Results as Parquet: a column's type is that of its values in the first group of rows, because
//! SQLite's columns have none.

use std::io::{self, Write};
use std::sync::Arc;

use everycall_io::terminal::line as visible;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use rusqlite::types::{Value, ValueRef};

use crate::database::Output;
use crate::output::{plain, unique};

/// Rows of a group.
const GROUP: usize = 1 << 16;
/// A group also ends when its texts have so many bytes.
const GROUP_BYTES: usize = 16 << 20;

/// Writes a result as a Parquet file.
pub struct Parquet<'o> {
    out: &'o mut dyn Write,
    names: Vec<String>,
    /// The rows of a group, by column.
    values: Vec<Vec<Value>>,
    held_rows: usize,
    held_bytes: usize,
    /// Once the types are known. It writes into memory, from where `out` gets it.
    file: Option<(SerializedFileWriter<Vec<u8>>, Vec<Kind>)>,
}

/// The type of a column's values, besides nulls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Integers,
    Reals,
    Bytes,
    /// Anything, as CSV has it.
    Texts,
}

impl Kind {
    fn of(values: &[Value]) -> Kind {
        let all = |is: fn(&Value) -> bool| values.iter().all(|value| *value == Value::Null || is(value));
        let is_integer = |value: &Value| matches!(value, Value::Integer(_));
        match () {
            // Whatever comes later can be written as text.
            () if all(|_| false) => Kind::Texts,
            () if all(is_integer) => Kind::Integers,
            () if all(|value| matches!(value, Value::Integer(_) | Value::Real(_))) => Kind::Reals,
            () if all(|value| matches!(value, Value::Blob(_))) => Kind::Bytes,
            () => Kind::Texts,
        }
    }

    fn holds(self, value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Integer(_) => self != Kind::Bytes,
            Value::Real(_) => matches!(self, Kind::Reals | Kind::Texts),
            Value::Text(_) => self == Kind::Texts,
            Value::Blob(_) => matches!(self, Kind::Bytes | Kind::Texts),
        }
    }

    fn declared(self, name: &str) -> Result<Type, ParquetError> {
        let (physical, logical) = match self {
            Kind::Integers => (Physical::INT64, None),
            Kind::Reals => (Physical::DOUBLE, None),
            Kind::Bytes => (Physical::BYTE_ARRAY, None),
            Kind::Texts => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()
    }

    /// For messages.
    fn name(self) -> &'static str {
        match self {
            Kind::Integers => "integers",
            Kind::Reals => "numbers",
            Kind::Bytes => "blobs",
            Kind::Texts => "texts",
        }
    }
}

impl<'o> Parquet<'o> {
    /// Writes to `out`.
    pub fn new(out: &'o mut dyn Write) -> Self {
        let (names, values) = (Vec::new(), Vec::new());
        Parquet { out, names, values, held_rows: 0, held_bytes: 0, file: None }
    }

    fn begin(&self) -> Result<(SerializedFileWriter<Vec<u8>>, Vec<Kind>), ParquetError> {
        let kinds: Vec<Kind> = self.values.iter().map(|values| Kind::of(values)).collect();
        let fields = self.names.iter().zip(&kinds).map(|(name, kind)| kind.declared(name).map(Arc::new));
        let fields = fields.collect::<Result<Vec<_>, _>>()?;
        let schema = Type::group_type_builder("everycall").with_fields(fields).build()?;
        let properties = WriterProperties::builder()
            .set_created_by(concat!("everycall ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            .build();
        let file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
        Ok((file, kinds))
    }

    fn write_group(&mut self) -> io::Result<()> {
        let (file, kinds) = match &mut self.file {
            Some(file) => file,
            None => {
                let begun = self.begin().map_err(io::Error::other)?;
                self.file.insert(begun)
            }
        };
        for ((name, values), kind) in self.names.iter().zip(&self.values).zip(&*kinds) {
            if let Some(other) = values.iter().find(|value| !kind.holds(value)) {
                let other = visible(&plain(ValueRef::from(other))).into_owned();
                return Err(io::Error::other(format!(
                    "column `{name}` has {} in its first rows and `{other:.40}` later; write cast({name} as text) or the like in the query",
                    kind.name()
                )));
            }
        }
        if self.held_rows > 0 {
            let written = write_columns(file, &self.values, kinds);
            written.map_err(io::Error::other)?;
        }
        // Bytes that are written stay valid: the file counts its bytes by itself.
        self.out.write_all(file.inner())?;
        file.inner_mut().clear();
        self.values.iter_mut().for_each(Vec::clear);
        (self.held_rows, self.held_bytes) = (0, 0);
        Ok(())
    }
}

fn write_columns(
    file: &mut SerializedFileWriter<Vec<u8>>,
    columns: &[Vec<Value>],
    kinds: &[Kind],
) -> Result<(), ParquetError> {
    let mut group = file.next_row_group()?;
    for (values, kind) in columns.iter().zip(kinds) {
        match kind {
            Kind::Integers => write_column::<Int64Type>(&mut group, values, |value| match value {
                Value::Integer(number) => Some(*number),
                _ => None,
            })?,
            Kind::Reals => write_column::<DoubleType>(&mut group, values, |value| match value {
                Value::Integer(number) => Some(*number as f64),
                Value::Real(number) => Some(*number),
                _ => None,
            })?,
            Kind::Bytes => write_column::<ByteArrayType>(&mut group, values, |value| match value {
                Value::Blob(bytes) => Some(ByteArray::from(bytes.clone())),
                _ => None,
            })?,
            Kind::Texts => write_column::<ByteArrayType>(&mut group, values, |value| match value {
                Value::Null => None,
                value => Some(ByteArray::from(plain(ValueRef::from(value)).into_bytes())),
            })?,
        }
    }
    group.close().map(drop)
}

fn write_column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[Value],
    of: impl Fn(&Value) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("the file has fewer columns".to_owned()));
    };
    let levels: Vec<i16> = values.iter().map(|value| i16::from(*value != Value::Null)).collect();
    let values: Vec<T::T> = values.iter().filter_map(of).collect();
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    column.close()
}

impl Output for Parquet<'_> {
    fn columns(&mut self, names: &[String]) -> io::Result<()> {
        self.names = names.to_vec();
        unique(&mut self.names);
        self.values = vec![Vec::new(); names.len()];
        Ok(())
    }

    fn row(&mut self, values: &[ValueRef<'_>]) -> io::Result<()> {
        self.held_rows += 1;
        for (column, value) in self.values.iter_mut().zip(values) {
            self.held_bytes += match value {
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
                _ => 0,
            };
            column.push(match *value {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(number) => Value::Integer(number),
                ValueRef::Real(number) => Value::Real(number),
                // Invalid UTF-8 is no reason to refuse a row.
                ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
                ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
            });
        }
        if self.held_rows >= GROUP || self.held_bytes >= GROUP_BYTES { self.write_group() } else { Ok(()) }
    }

    fn end(&mut self) -> io::Result<()> {
        if self.held_rows > 0 || self.file.is_none() {
            self.write_group()?;
        }
        if let Some((mut file, _)) = self.file.take() {
            file.finish().map_err(io::Error::other)?;
            self.out.write_all(file.inner())?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    fn written(names: &[&str], rows: impl IntoIterator<Item = Vec<Value>>) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut output = Parquet::new(&mut out);
        output.columns(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
        for row in rows {
            output.row(&row.iter().map(ValueRef::from).collect::<Vec<_>>())?;
        }
        output.end()?;
        Ok(out)
    }

    /// Each row as the crate prints it, and the file's types.
    fn read(bytes: Vec<u8>) -> (Vec<String>, Vec<Physical>) {
        let reader = SerializedFileReader::new(Bytes::from(bytes)).unwrap();
        let schema = reader.metadata().file_metadata().schema_descr();
        let types = schema.columns().iter().map(|column| column.physical_type()).collect();
        (reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect(), types)
    }

    #[test]
    fn values_of_each_type_are_read_back() {
        let row = |number: i64| {
            let real = if number % 2 == 0 { Value::Integer(number) } else { Value::Real(0.5) };
            let text = if number == 1 { Value::Null } else { Value::Text(format!("\u{202e}{number}")) };
            vec![Value::Integer(number), real, text, Value::Null, Value::Blob(vec![0xff])]
        };
        let names = ["n", "n", "text", "none", "blob"];
        let (rows, types) = read(written(&names, (0..3).map(row)).unwrap());
        assert_eq!(types[..3], [Physical::INT64, Physical::DOUBLE, Physical::BYTE_ARRAY]);
        assert_eq!(rows[1], "{n: 1, n_2: 0.5, text: null, none: null, blob: [255]}");
        assert_eq!(rows[2], "{n: 2, n_2: 2.0, text: \"\u{202e}2\", none: null, blob: [255]}");
    }

    #[test]
    fn results_of_any_length_are_read_back() {
        for count in [0, 1, GROUP, GROUP + 1, 3 * GROUP + 5] {
            let (rows, types) =
                read(written(&["n"], (0..count as i64).map(|n| vec![Value::Integer(n)])).unwrap());
            assert_eq!((rows.len(), types.len()), (count, 1), "{count}");
            assert!(rows.last().is_none_or(|row| *row == format!("{{n: {}}}", count - 1)), "{count}");
        }
    }

    #[test]
    fn a_value_that_does_not_fit_its_column_is_said() {
        let rows = (0..=GROUP as i64)
            .map(|n| vec![if n < GROUP as i64 { Value::Integer(n) } else { Value::Text("late".to_owned()) }]);
        let said = written(&["n"], rows).unwrap_err().to_string();
        assert!(
            said.contains("`n`") && said.contains("`late`") && said.contains("cast(n as text)"),
            "{said}"
        );
        // Within the first group, all are texts.
        let rows = [vec![Value::Integer(5)], vec![Value::Text("late".to_owned())]];
        assert_eq!(read(written(&["n"], rows).unwrap()).0, ["{n: \"5\"}", "{n: \"late\"}"]);
    }
}

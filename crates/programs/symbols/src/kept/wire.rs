//! Kept symbols as bytes: docs/format.md has the tables.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use everycall_format::Wire;
use everycall_format::ect::ArrayHeader;
use everycall_format::embedded::{
    AddressEntry, AnswerEntry, CompiledEntry, DataEntry, FunctionEntry, InlinedEntry, LeaveEntry, NONE,
    TwinEntry, data, function_flags, leave, question,
};

use super::{KeptFunction, KeptSymbols, Question};
use crate::function::{Function, FunctionId, InlinedCall, Leave, NameSource};
use crate::source::CompiledSource;

/// Texts are copied where they are named. All copies may have so many bytes, ...
const TEXTS_BASE: usize = 16 << 20;
/// ... or as a multiple of the input's.
const TEXTS_RATIO: usize = 16;

impl KeptSymbols {
    /// Its bytes; the same for the same symbols.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut texts = Texts::default();
        let mut arrays = Vec::new();
        array(&mut arrays, self.functions.iter().map(|kept| function_entry(kept, &mut texts)));
        let addresses = sorted(&self.addresses).map(|(address, id)| AddressEntry {
            address: *address,
            function: id.0,
            ..AddressEntry::default()
        });
        array(&mut arrays, addresses);
        array(
            &mut arrays,
            sorted(&self.leaves).map(|(address, left)| leave_entry(*address, left, &mut texts)),
        );
        let functions = || self.functions.iter().zip(0..);
        let mut twins = Vec::new();
        for (kept, function) in functions() {
            twins.extend(
                kept.twins.iter().map(|name| TwinEntry { function, name: texts.add(name.as_bytes()) }),
            );
        }
        array(&mut arrays, twins.into_iter());
        let mut inlined = Vec::new();
        for (kept, function) in functions() {
            inlined.extend(kept.inlined.iter().map(|call| InlinedEntry {
                function,
                level: call.level,
                name: texts.add(call.name.as_bytes()),
                file: texts.path(call.file.as_deref()),
                line: call.line.unwrap_or(0),
                reserved: 0,
            }));
        }
        array(&mut arrays, inlined.into_iter());
        let answers = sorted(&self.answers).map(|(asked, answer)| answer_entry(asked, *answer, &mut texts));
        array(&mut arrays, answers);
        let mut all = Vec::new();
        for (address, text) in sorted(&self.constants) {
            all.push(DataEntry { address: *address, text: texts.add(text), kind: data::CONSTANT });
        }
        for (address, name) in sorted(&self.variables) {
            all.push(DataEntry { address: *address, text: texts.add(name.as_bytes()), kind: data::VARIABLE });
        }
        for (address, name) in sorted(&self.tasks) {
            all.push(DataEntry { address: *address, text: texts.add(name.as_bytes()), kind: data::TASK });
        }
        for (address, (path, line)) in sorted(&self.lines) {
            let text = [path.as_os_str().as_bytes(), format!(":{line}").as_bytes()].concat();
            all.push(DataEntry { address: *address, text: texts.add(&text), kind: data::LINE });
        }
        array(&mut arrays, all.into_iter());
        let compiled = self.compiled.iter().map(|(path, compiled)| CompiledEntry {
            path: texts.path(Some(path)),
            folder: texts.path(compiled.folder.as_deref()),
            has_md5: compiled.md5.is_some().into(),
            reserved: 0,
            md5: compiled.md5.unwrap_or_default(),
        });
        array(&mut arrays, compiled);
        let warnings: Vec<u32> =
            self.warnings.iter().map(|sentence| texts.add(sentence.as_bytes())).collect();
        numbers(&mut arrays, &warnings);
        let mut bytes = Vec::new();
        numbers(&mut bytes, &texts.lengths);
        bytes.extend(texts.bytes);
        bytes.extend(arrays);
        bytes
    }

    /// Decodes symbols.
    ///
    /// # Errors
    ///
    /// The first fault, as a sentence. Nothing of damaged bytes is used.
    pub fn read(bytes: &[u8]) -> Result<KeptSymbols, &'static str> {
        let size = bytes.len();
        let mut input = Input { rest: bytes };
        let lengths: Vec<u32> = input.numbers()?;
        let mut texts = Vec::with_capacity(lengths.len());
        for length in lengths {
            texts.push(input.take(length as usize)?);
        }
        let left = TEXTS_BASE.saturating_add(size.saturating_mul(TEXTS_RATIO));
        let mut texts = Read { texts, left, paths: HashMap::new() };
        let mut kept = KeptSymbols::default();
        for entry in input.array::<FunctionEntry>()? {
            kept.functions.push(texts.function(&entry)?);
        }
        let count = kept.functions.len();
        let known = |id: u32| {
            let known = (id as usize) < count;
            known.then_some(FunctionId(id)).ok_or("it names a function that it doesn't have")
        };
        for function in &kept.functions {
            function.function.whole.map_or(Ok(FunctionId(0)), |whole| known(whole.0))?;
        }
        for entry in input.array::<AddressEntry>()? {
            kept.addresses.insert(entry.address, known(entry.function)?);
        }
        for entry in input.array::<LeaveEntry>()? {
            let left = match entry.kind {
                leave::RETURN => Leave::Return,
                leave::JUMP => Leave::Jump(known(entry.target)?),
                leave::JUMP_BY_NAME => Leave::JumpByName(texts.string(entry.target)?),
                leave::JUMP_ANYWHERE => Leave::JumpAnywhere,
                _ => continue,
            };
            kept.leaves.insert(entry.address, left);
        }
        for entry in input.array::<TwinEntry>()? {
            let name = texts.string(entry.name)?;
            if let Some(function) = kept.functions.get_mut(known(entry.function)?.index()) {
                function.twins.push(name);
            }
        }
        for entry in input.array::<InlinedEntry>()? {
            let call = InlinedCall {
                level: entry.level,
                name: texts.string(entry.name)?,
                file: texts.path(entry.file)?,
                line: Some(entry.line).filter(|line| *line > 0),
            };
            if let Some(function) = kept.functions.get_mut(known(entry.function)?.index()) {
                function.inlined.push(call);
            }
        }
        for entry in input.array::<AnswerEntry>()? {
            let id = |number: u64| known(u32::try_from(number).unwrap_or(NONE));
            let asked = match entry.question {
                question::SAME_FUNCTION => Question::SameFunction(entry.first, entry.second),
                question::INLINED => Question::Inlined(entry.first, id(entry.second)?, false),
                question::INLINED_AROUND => Question::Inlined(entry.first, id(entry.second)?, true),
                question::CALLED => {
                    let name = u32::try_from(entry.second).unwrap_or(NONE);
                    Question::Called(id(entry.first)?, texts.string(name)?)
                }
                question::MAY_CALL => Question::MayCall(entry.first, entry.second),
                _ => continue,
            };
            kept.answers
                .insert(asked, [Some(false), Some(true)].get(entry.answer as usize).copied().flatten());
        }
        for entry in input.array::<DataEntry>()? {
            match entry.kind {
                data::CONSTANT => {
                    drop(kept.constants.insert(entry.address, texts.bytes(entry.text)?.to_vec()))
                }
                data::VARIABLE => drop(kept.variables.insert(entry.address, texts.string(entry.text)?)),
                data::TASK => drop(kept.tasks.insert(entry.address, texts.string(entry.text)?)),
                data::LINE => {
                    kept.lines.insert(entry.address, line_of(texts.bytes(entry.text)?)?);
                }
                _ => {}
            }
        }
        for entry in input.array::<CompiledEntry>()? {
            let path = texts.path(entry.path)?.ok_or("a source file has no path")?;
            let folder = texts.path(entry.folder)?.map(|folder| folder.to_path_buf());
            let md5 = (entry.has_md5 == 1).then_some(entry.md5);
            kept.compiled.insert(path.to_path_buf(), CompiledSource { md5, folder });
        }
        for text in input.numbers()? {
            kept.warnings.push(texts.string(text)?);
        }
        Ok(kept)
    }
}

/// A source line as it is written: `PATH:LINE`.
fn line_of(text: &[u8]) -> Result<(PathBuf, u32), &'static str> {
    let wrong = "a source line has no number";
    let colon = text.iter().rposition(|byte| *byte == b':').ok_or(wrong)?;
    let line = str::from_utf8(&text[colon + 1..]).ok().and_then(|line| line.parse().ok()).ok_or(wrong)?;
    Ok((PathBuf::from(OsStr::from_bytes(&text[..colon])), line))
}

/// In the order of their keys.
fn sorted<K: Ord, V>(map: &HashMap<K, V>) -> std::collections::btree_map::IntoIter<&K, &V> {
    map.iter().collect::<BTreeMap<_, _>>().into_iter()
}

fn array<T: Wire>(bytes: &mut Vec<u8>, entries: impl Iterator<Item = T>) {
    let at = bytes.len();
    bytes.resize(at + ArrayHeader::SIZE, 0);
    let mut count = 0;
    for entry in entries {
        bytes.extend(entry.to_bytes());
        count += 1;
    }
    ArrayHeader { entry_size: T::SIZE as u32, count }.write(&mut bytes[at..]);
}

fn numbers(bytes: &mut Vec<u8>, numbers: &[u32]) {
    bytes.extend(ArrayHeader { entry_size: 4, count: numbers.len() as u32 }.to_bytes());
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

/// Texts that are being written, each once.
#[derive(Default)]
struct Texts {
    lengths: Vec<u32>,
    bytes: Vec<u8>,
    known: HashMap<Vec<u8>, u32>,
}

impl Texts {
    fn add(&mut self, text: &[u8]) -> u32 {
        if let Some(number) = self.known.get(text) {
            return *number;
        }
        let number = self.lengths.len() as u32;
        self.lengths.push(text.len() as u32);
        self.bytes.extend(text);
        self.known.insert(text.to_vec(), number);
        number
    }

    fn optional(&mut self, text: Option<&str>) -> u32 {
        text.map_or(NONE, |text| self.add(text.as_bytes()))
    }

    fn path(&mut self, path: Option<&Path>) -> u32 {
        path.map_or(NONE, |path| self.add(path.as_os_str().as_bytes()))
    }
}

fn function_entry(kept: &KeptFunction, texts: &mut Texts) -> FunctionEntry {
    let function = &kept.function;
    let mut flags = match function.source {
        NameSource::Symbol => 0,
        NameSource::Dwarf => 1,
        NameSource::Plt => 2,
        NameSource::Address => 3,
    };
    for (is_set, flag) in [
        (kept.is_ambiguous, function_flags::AMBIGUOUS),
        (kept.is_bare_thunk, function_flags::BARE_THUNK),
        (kept.by_gcc.is_some(), function_flags::COMPILER_KNOWN),
        (kept.by_gcc == Some(true), function_flags::BY_GCC),
    ] {
        flags |= if is_set { flag } else { 0 };
    }
    FunctionEntry {
        start: function.start,
        size: function.size,
        name: texts.add(function.name.as_bytes()),
        linkage_name: texts.optional(function.linkage_name.as_deref()),
        part: texts.optional(function.part.as_deref()),
        whole: function.whole.map_or(NONE, |whole| whole.0),
        file: texts.path(function.file.as_deref()),
        line: function.line.unwrap_or(0),
        more_twins: u32::try_from(kept.more_twins).unwrap_or(u32::MAX),
        more_inlined: u32::try_from(kept.more_inlined).unwrap_or(u32::MAX),
        flags,
        place: kept.place,
    }
}

fn leave_entry(address: u64, left: &Leave, texts: &mut Texts) -> LeaveEntry {
    let (kind, target) = match left {
        Leave::Return => (leave::RETURN, NONE),
        Leave::Jump(id) => (leave::JUMP, id.0),
        Leave::JumpByName(name) => (leave::JUMP_BY_NAME, texts.add(name.as_bytes())),
        Leave::JumpAnywhere => (leave::JUMP_ANYWHERE, NONE),
    };
    LeaveEntry { address, kind, target }
}

fn answer_entry(asked: &Question, answer: Option<bool>, texts: &mut Texts) -> AnswerEntry {
    let (question, first, second) = match asked {
        Question::SameFunction(entry, code) => (question::SAME_FUNCTION, *entry, *code),
        Question::Inlined(address, id, false) => (question::INLINED, *address, id.0.into()),
        Question::Inlined(address, id, true) => (question::INLINED_AROUND, *address, id.0.into()),
        Question::MayCall(caller, callee) => (question::MAY_CALL, *caller, *callee),
        Question::Called(id, name) => (question::CALLED, id.0.into(), texts.add(name.as_bytes()).into()),
    };
    AnswerEntry { first, second, question, answer: answer.map_or(2, u32::from) }
}

/// Bytes that are being read.
struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or("it is shorter than it says")?;
        self.rest = rest;
        Ok(taken)
    }

    /// Entries of at least `least` bytes.
    fn entries(&mut self, least: usize) -> Result<std::slice::ChunksExact<'a, u8>, &'static str> {
        let header = ArrayHeader::read(self.take(ArrayHeader::SIZE)?).unwrap_or_default();
        let size = header.entry_size as usize;
        if size < least {
            return Err("it has too small entries");
        }
        let claimed = size.checked_mul(header.count as usize).ok_or("it is shorter than it says")?;
        Ok(self.take(claimed)?.chunks_exact(size))
    }

    fn array<T: Wire>(&mut self) -> Result<impl Iterator<Item = T> + use<'a, T>, &'static str> {
        Ok(self.entries(T::SIZE)?.filter_map(T::read))
    }

    fn numbers(&mut self) -> Result<Vec<u32>, &'static str> {
        let first = |entry: &[u8]| entry.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        Ok(self.entries(4)?.filter_map(first).collect())
    }
}

/// Texts that are being read.
struct Read<'a> {
    texts: Vec<&'a [u8]>,
    /// Bytes that may still be copied.
    left: usize,
    paths: HashMap<u32, Arc<Path>>,
}

impl<'a> Read<'a> {
    fn bytes(&mut self, number: u32) -> Result<&'a [u8], &'static str> {
        let text = *self.texts.get(number as usize).ok_or("it names a text that it doesn't have")?;
        self.left = self.left.checked_sub(text.len()).ok_or("it repeats its texts too often")?;
        Ok(text)
    }

    fn string(&mut self, number: u32) -> Result<String, &'static str> {
        let text = str::from_utf8(self.bytes(number)?).map_err(|_| "a name isn't UTF-8")?;
        Ok(text.to_owned())
    }

    fn optional(&mut self, number: u32) -> Result<Option<String>, &'static str> {
        if number == NONE { Ok(None) } else { self.string(number).map(Some) }
    }

    fn path(&mut self, number: u32) -> Result<Option<Arc<Path>>, &'static str> {
        if number == NONE {
            return Ok(None);
        }
        if let Some(path) = self.paths.get(&number) {
            return Ok(Some(Arc::clone(path)));
        }
        let path: Arc<Path> = Path::new(OsStr::from_bytes(self.bytes(number)?)).into();
        self.paths.insert(number, Arc::clone(&path));
        Ok(Some(path))
    }

    fn function(&mut self, entry: &FunctionEntry) -> Result<KeptFunction, &'static str> {
        let source = match entry.flags & function_flags::NAME_SOURCE {
            0 => NameSource::Symbol,
            1 => NameSource::Dwarf,
            2 => NameSource::Plt,
            _ => NameSource::Address,
        };
        let has = |flag| entry.flags & flag != 0;
        Ok(KeptFunction {
            function: Function {
                name: self.string(entry.name)?,
                linkage_name: self.optional(entry.linkage_name)?,
                part: self.optional(entry.part)?,
                whole: Some(entry.whole).filter(|whole| *whole != NONE).map(FunctionId),
                source,
                start: entry.start,
                size: entry.size,
                file: self.path(entry.file)?,
                line: Some(entry.line).filter(|line| *line > 0),
            },
            twins: Vec::new(),
            more_twins: entry.more_twins as usize,
            inlined: Vec::new(),
            more_inlined: entry.more_inlined.into(),
            place: entry.place,
            is_ambiguous: has(function_flags::AMBIGUOUS),
            is_bare_thunk: has(function_flags::BARE_THUNK),
            by_gcc: has(function_flags::COMPILER_KNOWN).then(|| has(function_flags::BY_GCC)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Something of everything.
    fn sample() -> KeptSymbols {
        let file: Arc<Path> = Path::new("/src/a.cpp").into();
        let function = |start, name: &str, whole: Option<FunctionId>| KeptFunction {
            function: Function {
                name: name.to_owned(),
                linkage_name: Some(format!("_Z{name}")),
                part: Some("cold".to_owned()).filter(|_| whole.is_some()),
                whole,
                source: NameSource::Dwarf,
                start,
                size: 16,
                file: Some(Arc::clone(&file)),
                line: Some(7),
            },
            twins: vec!["_Ztwin".to_owned()],
            more_twins: 3,
            inlined: vec![InlinedCall { level: 1, name: "g()".into(), file: None, line: None }],
            more_inlined: 2,
            place: 77,
            is_ambiguous: start == 16,
            is_bare_thunk: start != 16,
            by_gcc: Some(start == 16),
        };
        let jumps =
            [Leave::Return, Leave::Jump(FunctionId(1)), Leave::JumpByName("f".into()), Leave::JumpAnywhere];
        KeptSymbols {
            functions: vec![function(16, "f()", None), function(32, "f()", Some(FunctionId(0)))],
            addresses: [(16, FunctionId(0)), (40, FunctionId(1))].into(),
            leaves: (20..).zip(jumps).collect(),
            answers: [
                (Question::SameFunction(16, 40), Some(true)),
                (Question::Inlined(17, FunctionId(1), false), None),
                (Question::Inlined(17, FunctionId(1), true), Some(false)),
                (Question::Called(FunctionId(0), "puts".to_owned()), Some(false)),
                (Question::MayCall(17, 40), Some(false)),
            ]
            .into(),
            constants: [(99, b"%d\xff\n".to_vec())].into(),
            variables: [(98, "server".to_owned())].into(),
            tasks: [(99, "app::serve".to_owned())].into(),
            lines: [(41, ("/src/a:b.cpp".into(), 12))].into(),
            compiled: [
                ("/src/a.cpp".into(), CompiledSource { md5: Some([3; 16]), folder: Some("/src".into()) }),
                ("/src/b.cpp".into(), CompiledSource::default()),
            ]
            .into(),
            warnings: vec!["a warning".to_owned()],
        }
    }

    #[test]
    fn everything_comes_back() {
        let bytes = sample().write();
        assert_eq!(KeptSymbols::read(&bytes), Ok(sample()));
        assert_eq!(sample().write(), bytes, "the same bytes each time");
        assert_eq!(KeptSymbols::read(&KeptSymbols::default().write()), Ok(KeptSymbols::default()));
    }

    #[test]
    fn cut_and_changed_bytes_are_harmless() {
        let bytes = sample().write();
        for end in 0..bytes.len() {
            assert!(KeptSymbols::read(&bytes[..end]).is_err(), "{end}");
        }
        for at in 0..bytes.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                // Refused, or something that can be written again.
                if let Ok(kept) = KeptSymbols::read(&changed) {
                    assert_eq!(KeptSymbols::read(&kept.write()), Ok(kept), "{at}");
                }
            }
        }
    }

    #[test]
    fn repeated_texts_dont_take_more_memory_than_the_input() {
        let mut texts = Texts::default();
        texts.add(&vec![b'x'; 1 << 20]);
        let mut bytes = Vec::new();
        numbers(&mut bytes, &texts.lengths);
        bytes.extend(texts.bytes);
        let entry = FunctionEntry { part: NONE, file: NONE, whole: NONE, ..FunctionEntry::default() };
        array(&mut bytes, std::iter::repeat_n(entry, 1000));
        assert_eq!(KeptSymbols::read(&bytes), Err("it repeats its texts too often"));
    }
}

//! Tables that all threads share: stacks, functions, files, texts.

use std::io;

use rustc_hash::FxHashMap;

use crate::frames::Frame;
use crate::json::{put_number, put_string};
use crate::names::Functions;
use crate::paths::Paths;
use crate::portions::Portions;

/// Texts, each once.
#[derive(Default)]
pub(super) struct Strings {
    numbers: FxHashMap<String, u64>,
    texts: Vec<String>,
}

impl Strings {
    pub(super) fn number(&mut self, text: &str) -> u64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.texts.len() as u64;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

/// Colours of modules, the first one's first; the profiler knows no others.
const COLOURS: [&str; 8] = ["blue", "orange", "green", "purple", "yellow", "magenta", "lightblue", "brown"];

/// The modules are the categories, which colour the profiler's graphs.
pub(super) fn put_categories(bytes: &mut Vec<u8>, modules: &[String]) {
    bytes.extend_from_slice(b"[{\"name\":\"Other\",\"color\":\"grey\",\"subcategories\":[\"Other\"]}");
    for (module, colour) in modules.iter().zip(COLOURS.iter().cycle()) {
        bytes.extend_from_slice(b",{\"name\":");
        put_string(bytes, module);
        bytes.extend_from_slice(b",\"color\":");
        put_string(bytes, colour);
        bytes.extend_from_slice(b",\"subcategories\":[\"Other\"]}");
    }
    bytes.push(b']');
}

/// Writes the tables; returns the names of the modules.
pub(super) fn put(
    out: &mut Portions<'_>,
    paths: &Paths,
    functions: &Functions<'_>,
    strings: &mut Strings,
) -> io::Result<Vec<String>> {
    let mut numbers: FxHashMap<Frame, u64> = FxHashMap::default();
    let mut frames: Vec<Frame> = Vec::new();
    let mut stack_frames = Vec::new();
    for path in paths.all() {
        let next = frames.len() as u64;
        stack_frames.push(*numbers.entry(path.frame).or_insert_with(|| {
            frames.push(path.frame);
            next
        }));
    }
    let offsets =
        paths.all().zip(0_u64..).map(|(path, at)| path.caller.map_or(0, |caller| at - u64::from(caller)));
    let count = stack_frames.len() as u64;
    column(out, b"{\"stackTable\":{\"frame\":", stack_frames.into_iter().map(Some))?;
    column(out, b",\n\"prefixOffset\":", offsets.map(Some))?;
    length(out, count);

    // Each frame is a function.
    let mut modules: Vec<String> = Vec::new();
    let mut files: Vec<u64> = Vec::new();
    let mut file_numbers: FxHashMap<u64, u64> = FxHashMap::default();
    let (mut names, mut lines, mut sources, mut categories) = (vec![], vec![], vec![], vec![]);
    for frame in &frames {
        names.push(Some(strings.number(frame.name(functions))));
        let function = match frame {
            Frame::Function(function) => Some(functions.get(*function)),
            _ => None,
        };
        lines.push(function.and_then(|function| function.line).map(u64::from));
        sources.push(function.and_then(|function| function.file.as_deref()).map(|file| {
            let file = strings.number(file);
            *file_numbers.entry(file).or_insert_with(|| {
                files.push(file);
                files.len() as u64 - 1
            })
        }));
        let module = function.map(|function| &function.module).filter(|module| !module.is_empty());
        categories.push(Some(module.map_or(0, |module| {
            let known = modules.iter().position(|known| known == module).unwrap_or_else(|| {
                modules.push(module.clone());
                modules.len() - 1
            });
            known as u64 + 1
        })));
    }
    let count = frames.len();
    let all = |text: &'static str| std::iter::repeat_n(text, count);
    texts(out, b"},\n\"frameTable\":{\"address\":", all("-1"))?;
    texts(out, b",\n\"lib\":", all("-1"))?;
    texts(out, b",\n\"inlineDepth\":", all("0"))?;
    column(out, b",\n\"category\":", categories.iter().copied())?;
    texts(out, b",\n\"subcategory\":", all("0"))?;
    column(out, b",\n\"func\":", (0..count as u64).map(Some))?;
    texts(out, b",\n\"nativeSymbol\":", all("null"))?;
    texts(out, b",\n\"innerWindowID\":", all("0"))?;
    column(out, b",\n\"line\":", lines.iter().copied())?;
    texts(out, b",\n\"column\":", all("null"))?;
    texts(out, b",\n\"originalLocation\":", all("null"))?;
    length(out, count as u64);
    column(out, b"},\n\"funcTable\":{\"name\":", names.into_iter())?;
    texts(out, b",\n\"isJS\":", all("false"))?;
    texts(out, b",\n\"relevantForJS\":", all("false"))?;
    let resources = categories.iter().map(|category| category.and_then(|category| category.checked_sub(1)));
    let resources = resources.map(|resource| resource.map_or("-1".to_owned(), |number| number.to_string()));
    texts(out, b",\n\"resource\":", resources)?;
    column(out, b",\n\"source\":", sources.into_iter())?;
    column(out, b",\n\"lineNumber\":", lines.into_iter())?;
    texts(out, b",\n\"columnNumber\":", all("null"))?;
    texts(out, b",\n\"originalLocation\":", all("null"))?;
    length(out, count as u64);

    let count = modules.len();
    let all = |text: &'static str| std::iter::repeat_n(text, count);
    let names: Vec<u64> = modules.iter().map(|module| strings.number(module)).collect();
    column(out, b"},\n\"resourceTable\":{\"name\":", names.into_iter().map(Some))?;
    texts(out, b",\"host\":", all("null"))?;
    // A library.
    texts(out, b",\"type\":", all("1"))?;
    length(out, count as u64);
    out.put(b"},\n\"nativeSymbols\":{\"libIndex\":[],\"address\":[],\"name\":[],\"functionSize\":[],\"length\":0}");

    let count = files.len();
    let all = |text: &'static str| std::iter::repeat_n(text, count);
    texts(out, b",\n\"sources\":{\"id\":", all("null"))?;
    column(out, b",\"filename\":", files.into_iter().map(Some))?;
    texts(out, b",\"startLine\":", all("1"))?;
    texts(out, b",\"startColumn\":", all("1"))?;
    texts(out, b",\"sourceMapURL\":", all("null"))?;
    texts(out, b",\"content\":", all("null"))?;
    length(out, count as u64);
    out.put(b"},\n\"sourceLocationTable\":{\"source\":[],\"line\":[],\"column\":[],\"length\":0},\n\"stringArray\":[");
    for (number, text) in strings.texts.iter().enumerate() {
        out.put(if number == 0 { b"\n" } else { b",\n" });
        put_string(&mut out.bytes, text);
        out.spill()?;
    }
    out.put(b"]}");
    Ok(modules)
}

/// A column of numbers.
fn column(out: &mut Portions<'_>, key: &[u8], items: impl Iterator<Item = Option<u64>>) -> io::Result<()> {
    out.put(key);
    let mut separator = b'[';
    for item in items {
        out.bytes.push(std::mem::replace(&mut separator, b','));
        match item {
            Some(number) => put_number(&mut out.bytes, number),
            None => out.put(b"null"),
        }
        out.spill()?;
    }
    out.put(if separator == b'[' { b"[]" } else { b"]" });
    Ok(())
}

/// A column of other values.
fn texts<T: AsRef<str>>(
    out: &mut Portions<'_>,
    key: &[u8],
    items: impl Iterator<Item = T>,
) -> io::Result<()> {
    out.put(key);
    let mut separator = b'[';
    for item in items {
        out.bytes.push(std::mem::replace(&mut separator, b','));
        out.put(item.as_ref().as_bytes());
        out.spill()?;
    }
    out.put(if separator == b'[' { b"[]" } else { b"]" });
    Ok(())
}

fn length(out: &mut Portions<'_>, length: u64) {
    out.put(b",\"length\":");
    put_number(&mut out.bytes, length);
}

/// Appends nanoseconds as milliseconds with six decimals: exact.
#[inline]
pub(super) fn put_milliseconds(bytes: &mut Vec<u8>, ns: u64) {
    put_number(bytes, ns / 1_000_000);
    let mut part = ns % 1_000_000;
    if part > 0 {
        let mut digits = *b".000000";
        for digit in digits[1..].iter_mut().rev() {
            *digit = b'0' + (part % 10) as u8;
            part /= 10;
        }
        bytes.extend_from_slice(&digits);
    }
}

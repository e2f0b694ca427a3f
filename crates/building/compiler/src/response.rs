//! Response files: `@FILE` arguments, read as compilers read them.
//!
//! Only for the prefix's own evaluation; the compiler gets the original arguments.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Limit for nested response files. Compilers report a loop as an error.
const DEPTH_MAX: usize = 16;
/// Limit for all arguments together: far above any real command, to bound memory.
const ARGS_MAX: usize = 1 << 20;

/// The arguments with every readable `@FILE` replaced by its contents.
pub fn expand(args: &[OsString]) -> Vec<OsString> {
    let mut all = Vec::with_capacity(args.len());
    for arg in args {
        expand_into(arg, DEPTH_MAX, &mut all);
    }
    all
}

fn expand_into(arg: &OsStr, depth: usize, all: &mut Vec<OsString>) {
    let contents = arg.as_bytes().strip_prefix(b"@").and_then(|name| {
        // Compilers take the name of an unreadable file as an argument. A pipe can be read only once: by
        // the compiler.
        let path = Path::new(OsStr::from_bytes(name));
        path.is_file().then(|| std::fs::read(path).ok()).flatten()
    });
    match contents {
        Some(contents) if depth > 0 && all.len() < ARGS_MAX => {
            for word in words(&contents) {
                expand_into(&word, depth - 1, all);
            }
        }
        _ => all.push(arg.to_owned()),
    }
}

/// Words separated by white space; quotes of both kinds and backslashes keep characters together.
fn words(text: &[u8]) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'\\', _) => word.get_or_insert_default().extend(bytes.next()),
            (byte, Some(open)) if byte == open => quote = None,
            (byte, Some(_)) => word.get_or_insert_default().push(byte),
            (b'\'' | b'"', None) => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (byte, None) if byte.is_ascii_whitespace() || byte == 0x0b => {
                words.extend(word.take().map(OsString::from_vec));
            }
            (byte, None) => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word.map(OsString::from_vec));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_keep_words_together() {
        let text = br#"-c  'a b.c' "x\"y" d\ e '' -DX="1 2"
            end"#;
        let expected = ["-c", "a b.c", "x\"y", "d e", "", "-DX=1 2", "end"].map(OsString::from);
        assert_eq!(words(text), expected);
        assert_eq!(words(b"a\\"), [OsString::from("a")]);
        assert_eq!(words(b"'open"), [OsString::from("open")]);
    }

    #[test]
    fn files_that_name_themselves_end() {
        let folder = std::env::temp_dir().join(format!("everycall-response-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("again");
        std::fs::write(&file, format!("-c @{}", file.display())).unwrap();
        let args = expand(&[format!("@{}", file.display()).into(), "@no/such/file".into()]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(args.first(), Some(&OsString::from("-c")));
        assert_eq!(args.last(), Some(&OsString::from("@no/such/file")));
        assert!(args.len() < 40);
    }
}

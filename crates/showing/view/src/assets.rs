//! The page's files, built from `page/` by its own tools and kept beside it.

/// A file of the page: name, kind and content.
pub(crate) type Asset = (&'static str, &'static str, &'static [u8]);

pub(crate) const INDEX: &[u8] = include_bytes!("../page/dist/index.html");
pub(crate) const SCRIPT: &[u8] = include_bytes!("../page/dist/app.js");
pub(crate) const STYLE: &[u8] = include_bytes!("../page/dist/app.css");
pub(crate) const WORKER: &[u8] = include_bytes!("../page/dist/worker.js");
/// The page that has all of these inside, with one line in the place of its data.
pub(crate) const ALONE: &[u8] = include_bytes!("../page/dist/alone.html");

/// The code that computes the answers of that page: WebAssembly, compressed by gzip.
pub(crate) const ANSWERS: &[u8] = include_bytes!("../page/dist/answers.wasm.gz");

/// All of them, by the path at which they are served.
pub(crate) const ALL: [Asset; 4] = [
    ("", "text/html; charset=utf-8", INDEX),
    ("app.js", "text/javascript; charset=utf-8", SCRIPT),
    ("app.css", "text/css; charset=utf-8", STYLE),
    ("worker.js", "text/javascript; charset=utf-8", WORKER),
];

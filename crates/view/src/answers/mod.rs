//! Answers to the page's requests; `docs/design/viewer.md` lists these.
//!
//! ```text
//! trace     what the files hold
//! draw      what lies in a window: slices, states, marks, counters, density
//! find      search, where its hits are, the next one
//! call      one call, or the calls of one function
//! place     a call by track, moment and depth
//! sums      tables and trees of a range, comparison
//! ```

mod call;
mod draw;
mod find;
mod place;
mod sums;
mod trace;

use serde_json::{Value, json};

use crate::http::Answer;
use crate::library::Library;
use crate::query::{Answered, Query};

pub use draw::Slice;
pub(crate) use draw::{counters_of, marks_of, slices_of, states_of};
pub(crate) use sums::whole_tree;
pub use sums::{Tree, TreeNode};
pub(crate) use trace::trace;

pub(crate) const JSON: &str = "application/json";
const BINARY: &str = "application/octet-stream";

/// An answer that is only a sentence.
pub(crate) fn error(status: u16, sentence: &str) -> Answer {
    Answer { status, kind: JSON, body: json!({ "error": sentence }).to_string().into_bytes() }
}

/// The answer to a request.
pub(crate) fn answer(library: &Library, path: &str, query: &str) -> Answer {
    let query = Query::parse(query);
    if path == "slices" {
        return match draw::slices(library, &query) {
            Ok(body) => Answer { status: 200, kind: BINARY, body },
            Err(sentence) => error(400, &sentence),
        };
    }
    match json(library, path, &query) {
        Some(Ok(value)) => Answer { status: 200, kind: JSON, body: bytes(&value) },
        Some(Err(sentence)) => error(400, &sentence),
        None => error(404, "the viewer has no such answer"),
    }
}

/// The answer to a request that has one in JSON.
pub(crate) fn json(library: &Library, name: &str, query: &Query) -> Option<Answered<Value>> {
    Some(match name {
        "trace" => trace::trace(library),
        "functions" => trace::functions(library, query),
        "states" => draw::states(library, query),
        "marks" => draw::marks(library, query),
        "counters" => draw::counters(library, query),
        "overview" => draw::overview(library, query),
        "hits" => find::hits(library, query),
        "next" => find::next(library, query),
        "text" => find::listed(library, query),
        "slice" => call::slice(library, query),
        "instances" => call::instances(library, query),
        "explain" => call::explain(library, query),
        "source" => call::source(library, query),
        "report" => sums::report(library, query),
        "flame" => sums::flame(library, query),
        "search" => find::search(library, query),
        "compare" => sums::compare(library, query),
        _ => return None,
    })
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

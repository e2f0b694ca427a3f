//! Requests of the page: a path and a query, answered in JSON, or in columns.

use serde::Serialize;
use serde_json::json;

use crate::answers::{self as give, Answered};
use crate::http::Answer;
use crate::library::Library;
use crate::running::States;
use everycall_answers::Query;

pub(crate) const JSON: &str = "application/json";
const BINARY: &str = "application/octet-stream";

/// An answer that is only a sentence.
pub(crate) fn error(status: u16, sentence: &str) -> Answer {
    Answer { status, kind: JSON, body: json!({ "error": sentence }).to_string().into_bytes() }
}

/// The answer to a request.
pub(crate) fn answer(library: &Library, path: &str, query: &str) -> Answer {
    answer_parsed(library, path, &Query::parse(query))
}

/// The answer to a request about a running program: from the state that it names, or the newest.
pub(crate) fn answer_running(states: &States, path: &str, query: &Query) -> Answer {
    let number = match query.number("generation") {
        Ok(number) => number,
        Err(sentence) => return error(400, &sentence),
    };
    let said = match path {
        "running" => json_of(|| Ok(states.told(number, query.text("frozen").is_some()))),
        "keep" => json_of(|| {
            let range = match (query.number("from")?, query.number("to")?) {
                (Some(from), Some(to)) => Some((from, to.max(from))),
                _ => None,
            };
            Ok(json!({ "file": states.keep(number, range)? }))
        }),
        "switch" => json_of(|| {
            let is_on = query.text("on").is_some_and(|on| on == "1");
            Ok(json!({ "said": states.switch(query.function()?, is_on)? }))
        }),
        _ => match states.state(number) {
            Ok(library) => return answer_parsed(&library, path, query),
            Err(sentence) => Err(sentence),
        },
    };
    said.map_or_else(|sentence| error(400, &sentence), |(kind, body)| Answer { status: 200, kind, body })
}

fn answer_parsed(library: &Library, path: &str, query: &Query) -> Answer {
    match answered(library, path, query) {
        Some(Ok((kind, body))) => Answer { status: 200, kind, body },
        Some(Err(sentence)) => error(400, &sentence),
        None => error(404, "the viewer has no such answer"),
    }
}

fn answered(library: &Library, path: &str, query: &Query) -> Option<Answered<(&'static str, Vec<u8>)>> {
    let window = || query.window(give::end_ns(library)?);
    let tracks = || give::tracks_of(library, query.tracks()?);
    Some(match path {
        "trace" => json_of(|| give::trace(library)),
        "functions" => json_of(|| {
            let to = query.index("to", usize::MAX)?;
            Ok(give::functions(library, query.index("from", 0)?, to))
        }),
        "slices" => (|| {
            let (tracks, depths) = (tracks()?, query.depths()?);
            Ok((BINARY, give::encoded(library, &tracks, window()?, &depths)?))
        })(),
        "states" => json_of(|| give::states(library, &tracks()?, window()?)),
        "marks" => json_of(|| give::marks(library, &tracks()?, window()?)),
        "samples" => json_of(|| give::samples(library, &tracks()?, window()?)),
        "counters" => json_of(|| give::counters(library, window()?)),
        "overview" => json_of(|| give::overview(library, window()?.2)),
        "hits" => json_of(|| give::hits(library, &query.sought()?, &tracks()?, window()?)),
        "next" => json_of(|| {
            let is_forward = query.text("dir").is_none_or(|dir| dir != "previous");
            let tracks = query.tracks()?;
            give::next(library, &query.sought()?, query.cursor()?, is_forward, tracks.as_deref())
        }),
        "text" => json_of(|| {
            let (from, to, _) = window()?;
            give::listed(library, &tracks()?, (from, to), query.index("limit", 200)?)
        }),
        "slice" => json_of(|| give::slice(library, query.position()?)),
        "instances" => json_of(|| {
            give::instances(library, query.function()?, &query.scope()?, query.index("limit", 100)?)
        }),
        "explain" => json_of(|| give::explain(library, query.position()?)),
        "source" => json_of(|| give::source(library, query.function()?)),
        "report" => json_of(|| {
            give::report(library, &query.scope()?, query.grouping()?, query.index("limit", usize::MAX)?)
        }),
        "flame" => json_of(|| give::flame(library, &query.scope()?)),
        "search" => json_of(|| give::search(library, &query.sought()?, query.index("limit", 1000)?)),
        "compare" => json_of(|| give::compare(library, &query.side("a")?, &query.side("b")?)),
        _ => return None,
    })
}

fn json_of<T: Serialize>(answer: impl FnOnce() -> Answered<T>) -> Answered<(&'static str, Vec<u8>)> {
    let body = serde_json::to_vec(&answer()?).map_err(|error| error.to_string())?;
    Ok((JSON, body))
}

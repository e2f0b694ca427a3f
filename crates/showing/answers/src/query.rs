//! The parameters of a request, behind the question mark.

use std::collections::BTreeMap;

use everycall_profile::Grouping;

use crate::Answered;
use crate::scope::{Position, Scope, Side, Sought};

/// The values by name; of several with one name, the last.
pub struct Query(BTreeMap<String, String>);

/// Tracks in one request.
const TRACKS_MAX: usize = 1 << 14;

impl Query {
    /// The parameters of a query string.
    #[must_use]
    pub fn parse(text: &str) -> Query {
        Query(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// A value, if it is there and not empty.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// A whole number, if it is there; negative ones are 0.
    ///
    /// # Errors
    ///
    /// A sentence what is wrong with it.
    pub fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.strip_prefix('-') {
            Some(rest) if is_number(rest) => Ok(Some(0)),
            _ => text.parse().map(Some).map_err(|_| format!("{name} is no whole number")),
        }
    }

    /// A number that must be there.
    ///
    /// # Errors
    ///
    /// A sentence what is wrong with it.
    pub fn needed(&self, name: &str) -> Result<u64, String> {
        self.number(name)?.ok_or_else(|| format!("{name} is missing"))
    }

    /// The window: from, to, and its width in pixels.
    ///
    /// # Errors
    ///
    /// A sentence what is wrong with it.
    pub fn window(&self, end_ns: u64) -> Answered<(u64, u64, u64)> {
        let from = self.number("from")?.unwrap_or(0);
        let to = self.number("to")?.unwrap_or(end_ns).max(from);
        let pixels = self.number("pixels")?.unwrap_or(1000).clamp(1, 16_384);
        Ok((from, to, pixels))
    }

    /// The depths, `FROM-TO` without the last; all where nothing is said.
    ///
    /// # Errors
    ///
    /// A sentence what is wrong with it.
    pub fn depths(&self) -> Result<std::ops::Range<usize>, String> {
        let Some(text) = self.text("depths") else { return Ok(0..usize::MAX) };
        let wrong = || "depths are FROM-TO".to_owned();
        let (from, to) = text.split_once('-').ok_or_else(wrong)?;
        let number = |text: &str| text.parse().map_err(|_| wrong());
        Ok(number(from)?..number(to)?)
    }

    /// The tracks; `None` for all.
    ///
    /// # Errors
    ///
    /// A sentence what is wrong with it.
    pub fn tracks(&self) -> Answered<Option<Vec<u32>>> {
        self.text("tracks").map(tracks).transpose()
    }

    /// A place in a list.
    ///
    /// # Errors
    ///
    /// A sentence what is wrong with it.
    pub fn index(&self, name: &str, usual: usize) -> Answered<usize> {
        let index = self.number(name)?;
        Ok(index.map_or(usual, |index| usize::try_from(index).unwrap_or(usize::MAX)))
    }

    /// Where a call is.
    ///
    /// # Errors
    ///
    /// A sentence what is wrong with it.
    pub fn position(&self) -> Answered<Position> {
        let track = u32::try_from(self.needed("track")?).map_err(|_| "there is no such track".to_owned())?;
        let depth = usize::try_from(self.needed("depth")?).unwrap_or(usize::MAX);
        Ok(Position { track, at: self.needed("at")?, depth })
    }

    /// A function that must be there.
    ///
    /// # Errors
    ///
    /// A sentence what is wrong with it.
    pub fn function(&self) -> Answered<u32> {
        Ok(u32::try_from(self.needed("function")?).unwrap_or(u32::MAX))
    }

    /// The calls that sums cover.
    ///
    /// # Errors
    ///
    /// A sentence what is wrong with it.
    pub fn scope(&self) -> Answered<Scope> {
        if let Some(call) = self.text("call") {
            return Ok(Scope { call: Some(position(call)?), ..Scope::default() });
        }
        let (from, to) = (self.number("from")?, self.number("to")?);
        Ok(Scope { from, to, tracks: self.tracks()?, call: None })
    }

    /// By which a table groups calls: there is a row for each.
    ///
    /// # Errors
    ///
    /// A sentence what is wrong with it.
    pub fn grouping(&self) -> Answered<Grouping> {
        Ok(match self.text("by").unwrap_or("function") {
            "function" => Grouping::Function,
            "path" => Grouping::Path,
            "module" => Grouping::Module,
            "thread" => Grouping::Thread,
            "process" => Grouping::Process,
            "file" => Grouping::File,
            other => match other.strip_prefix("label:") {
                Some(label) => Grouping::Label(label.to_owned()),
                None => {
                    return Err(
                        "by is function, path, module, thread, process, file or label:NAME".to_owned()
                    );
                }
            },
        })
    }

    /// The calls and marks that a search is for.
    ///
    /// # Errors
    ///
    /// A sentence what is wrong with it.
    pub fn sought(&self) -> Answered<Sought> {
        if self.number("function")?.is_some() {
            return Ok(Sought::Function(self.function()?));
        }
        Ok(Sought::Text(self.text("q").ok_or("q is missing")?.to_owned()))
    }

    /// A hit: its begin, track and depth, if it has one.
    ///
    /// # Errors
    ///
    /// A sentence what is wrong with it.
    pub fn cursor(&self) -> Answered<Option<(u64, u32, Option<usize>)>> {
        let Some(from) = self.number("from")? else { return Ok(None) };
        let track = self.number("track")?.unwrap_or(0) as u32;
        // A mark has no depth.
        Ok(Some((from, track, self.number("depth")?.map(|depth| depth as usize))))
    }

    /// A side of a comparison: `range:FILE:FROM:TO:TRACKS`, where each number may be left out, or
    /// `call:TRACK:AT:DEPTH`.
    ///
    /// # Errors
    ///
    /// A sentence what is wrong with it.
    pub fn side(&self, name: &str) -> Answered<Side> {
        let text = self.text(name).ok_or_else(|| format!("{name} is missing"))?;
        let wrong = || format!("`{text}` isn't range:FILE:FROM:TO:TRACKS or call:TRACK:AT:DEPTH");
        if let Some(call) = text.strip_prefix("call:") {
            return Ok(Side::Call(position(call)?));
        }
        let mut parts = text.strip_prefix("range:").ok_or_else(wrong)?.split(':');
        let mut number = || match parts.next().unwrap_or_default() {
            "" => Ok(None),
            text => text.parse::<u64>().map(Some).map_err(|_| wrong()),
        };
        let (file, from, to) = (number()?.unwrap_or(0), number()?, number()?);
        let tracks = parts.next().filter(|text| !text.is_empty()).map(tracks).transpose()?;
        Ok(Side::Range(file as usize, Scope { from, to, tracks, call: None }))
    }
}

/// A `TRACK:AT:DEPTH`.
fn position(text: &str) -> Answered<Position> {
    let wrong = || format!("`{text}` isn't TRACK:AT:DEPTH");
    let parts: Vec<u64> =
        text.split(':').map(|part| part.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
    let [track, at, depth] = parts.as_slice() else { return Err(wrong()) };
    let track = u32::try_from(*track).map_err(|_| wrong())?;
    Ok(Position { track, at: *at, depth: usize::try_from(*depth).map_err(|_| wrong())? })
}

/// Numbers of tracks with commas between them.
fn tracks(text: &str) -> Result<Vec<u32>, String> {
    let wrong = |_| "tracks are numbers with commas between them".to_owned();
    text.split(',').take(TRACKS_MAX).map(|track| track.parse().map_err(wrong)).collect()
}

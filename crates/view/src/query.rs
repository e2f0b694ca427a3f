//! The parameters of a request, behind the question mark.

use std::collections::BTreeMap;

/// An answer, or a sentence why there is none.
pub(crate) type Answered<T> = Result<T, String>;

/// The values by name; of several with one name, the last.
pub(crate) struct Query(BTreeMap<String, String>);

/// Tracks in one request.
const TRACKS_MAX: usize = 1 << 14;

impl Query {
    pub fn parse(text: &str) -> Query {
        Query(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// A whole number, if it is there; negative ones are 0.
    pub fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.strip_prefix('-') {
            Some(rest) if is_number(rest) => Ok(Some(0)),
            _ => text.parse().map(Some).map_err(|_| format!("{name} is no whole number")),
        }
    }

    /// A number that must be there.
    pub fn needed(&self, name: &str) -> Result<u64, String> {
        self.number(name)?.ok_or_else(|| format!("{name} is missing"))
    }

    /// The window: from, to, and its width in pixels.
    pub fn window(&self, end_ns: u64) -> Result<(u64, u64, u64), String> {
        let from = self.number("from")?.unwrap_or(0);
        let to = self.number("to")?.unwrap_or(end_ns).max(from);
        let pixels = self.number("pixels")?.unwrap_or(1000).clamp(1, 16_384);
        Ok((from, to, pixels))
    }

    /// The depths, `FROM-TO` without the last; all where nothing is said.
    pub fn depths(&self) -> Result<std::ops::Range<usize>, String> {
        let Some(text) = self.text("depths") else { return Ok(0..usize::MAX) };
        let wrong = || "depths are FROM-TO".to_owned();
        let (from, to) = text.split_once('-').ok_or_else(wrong)?;
        let number = |text: &str| text.parse().map_err(|_| wrong());
        Ok(number(from)?..number(to)?)
    }

    /// The tracks; `None` for all.
    pub fn tracks(&self) -> Result<Option<Vec<u32>>, String> {
        let Some(text) = self.text("tracks") else { return Ok(None) };
        tracks(text).map(Some)
    }
}

/// Numbers of tracks with commas between them.
pub(crate) fn tracks(text: &str) -> Result<Vec<u32>, String> {
    let wrong = |_| "tracks are numbers with commas between them".to_owned();
    text.split(',').take(TRACKS_MAX).map(|track| track.parse().map_err(wrong)).collect()
}

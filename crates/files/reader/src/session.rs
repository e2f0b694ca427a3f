//! One session's request.

use everycall_format::site_set::SiteSet;
use everycall_format::{Wire, ect, until_nul};

use crate::model::{FunctionSet, Recording, Session};
use crate::payload::SHORT;

/// Reads what a session of the process with index `process` requested. `Err` says what is wrong
/// with the payload.
pub(crate) fn read_session(
    bytes: &[u8],
    process: usize,
    recording: &mut Recording,
) -> Result<(), &'static str> {
    let record = ect::SessionRecord::read(bytes).ok_or(SHORT)?;
    let sets = bytes.get(record.record_size as usize..).ok_or(SHORT)?;
    let (functions, rest) = sets.split_at_checked(record.functions_length as usize).ok_or(SHORT)?;
    let (within, _) = rest.split_at_checked(record.within_length as usize).ok_or(SHORT)?;
    let within = if within.is_empty() { None } else { Some(function_set(within)?) };
    recording.session = Some(Session {
        name: until_nul(&record.name).to_vec(),
        process,
        start_ticks: record.start_ticks,
        end_ticks: record.end_ticks,
        owner: record.owner,
        functions: function_set(functions)?,
        within,
        crossing: record.flags & ect::session_flags::CROSSING != 0,
        some_threads: record.flags & ect::session_flags::SOME_THREADS != 0,
        has_all_callers: record.flags & ect::session_flags::ALL_CALLERS != 0,
    });
    Ok(())
}

fn function_set(bytes: &[u8]) -> Result<FunctionSet, &'static str> {
    let set = SiteSet::parse(bytes, crc32fast::hash).ok().filter(SiteSet::is_selection);
    let set = set.ok_or("its functions are damaged, or of another version")?;
    let rules = (0..set.rule_count()).filter_map(|index| set.rule(index));
    let modules = set.modules().map(|module| {
        let build_id = module.build_id.get(..module.build_id_length as usize).unwrap_or_default().to_vec();
        (build_id, set.sites_of(&module).map(|site| (site.start, site.end)).collect())
    });
    Ok(FunctionSet {
        rules: rules.map(|rule| set.text(rule.text_offset, rule.text_length).to_vec()).collect(),
        others: set.header().others != 0,
        modules: modules.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_or_damaged_sessions_filter_no_events() {
        let record = ect::SessionRecord {
            record_size: ect::SessionRecord::SIZE as u32,
            functions_length: 8,
            ..Default::default()
        };
        let mut bytes = record.to_bytes().to_vec();
        bytes.extend([7; 8]);
        for end in 0..=bytes.len() {
            let mut recording = Recording::default();
            assert!(read_session(&bytes[..end], 0, &mut recording).is_err());
            assert_eq!(recording.session, None);
        }
    }
}

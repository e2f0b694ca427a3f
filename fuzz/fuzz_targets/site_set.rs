//! Site sets. Checksums that are wrong are repaired first, or nothing behind them would ever be read.
#![no_main]

use everycall_format::site_set::{SITES_MAX, SetError, SiteSet};
use libfuzzer_sys::fuzz_target;

/// Where the header has the file's length and its two checksums.
const LENGTH: usize = 16;
const PAYLOAD_CHECKSUM: usize = 56;
const HEADER_CHECKSUM: usize = 60;
const HEADER: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    let _ = SiteSet::parse(bytes, crc32fast::hash);
    let mut bytes = bytes.to_vec();
    if bytes.len() >= HEADER {
        let length = bytes.len() as u64;
        bytes[LENGTH..LENGTH + 8].copy_from_slice(&length.to_le_bytes());
        let payload = crc32fast::hash(&bytes[HEADER..]);
        bytes[PAYLOAD_CHECKSUM..HEADER_CHECKSUM].copy_from_slice(&payload.to_le_bytes());
        let header = crc32fast::hash(&bytes[..HEADER_CHECKSUM]);
        bytes[HEADER_CHECKSUM..HEADER].copy_from_slice(&header.to_le_bytes());
    }
    let set = match SiteSet::parse(&bytes, crc32fast::hash) {
        Ok(set) => set,
        Err(SetError::NoSet | SetError::Version(_) | SetError::Damaged) => return,
    };
    for rule in (0..set.rule_count()).map(|index| set.rule(index).expect("each is there")) {
        assert_eq!(set.text(rule.text_offset, rule.text_length).len(), rule.text_length as usize);
        assert!(rule.threshold_ns > 0 && rule.keep > 0);
    }
    for module in set.modules() {
        assert_eq!(set.text(module.path_offset, module.path_length).len(), module.path_length as usize);
        let sites: Vec<_> = set.sites_of(&module).collect();
        assert!(sites.len() == module.sites as usize && module.sites <= SITES_MAX);
        assert!(sites.iter().all(|site| site.start < site.end && site.rule < set.rule_count()));
        assert!(sites.is_sorted_by_key(|site| (site.start, site.rule)));
    }
});

//! The bytes of a site set, whatever it is for.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use everycall_format::Wire;
use everycall_format::site_set::{MAGIC, SetHeader, SetModule, SetRule, SetSite, VERSION};

/// Writes a site set. Rules, modules and types may be added in any order; each keeps the order of
/// its kind.
#[derive(Debug, Default)]
pub struct SetWriter {
    rules: Entries,
    modules: Entries,
    sites: Entries,
    types: Entries,
    texts: Vec<u8>,
}

/// Entries of one kind.
#[derive(Debug, Default)]
struct Entries {
    bytes: Vec<u8>,
    count: u32,
}

impl Entries {
    fn add<T: Wire>(&mut self, entry: &T) {
        self.bytes.extend(entry.to_bytes());
        self.count += 1;
    }
}

impl SetWriter {
    /// Keeps a text. Returns where it is among the texts, and its length.
    pub fn text(&mut self, bytes: &[u8]) -> (u32, u32) {
        let place = (self.texts.len() as u32, bytes.len() as u32);
        self.texts.extend_from_slice(bytes);
        place
    }

    /// Adds a rule.
    pub fn rule(&mut self, rule: &SetRule) {
        self.rules.add(rule);
    }

    /// Adds a module, whose build id has at most 32 bytes, with its sites.
    pub fn module(&mut self, path: &Path, build_id: &[u8], sites: impl IntoIterator<Item = SetSite>) {
        let (path_offset, path_length) = self.text(path.as_os_str().as_bytes());
        let first_site = self.sites.count;
        sites.into_iter().for_each(|site| self.sites.add(&site));
        let mut padded = [0; 32];
        padded.iter_mut().zip(build_id).for_each(|(to, from)| *to = *from);
        self.modules.add(&SetModule {
            build_id_length: build_id.len().min(padded.len()) as u32,
            first_site,
            sites: self.sites.count - first_site,
            path_offset,
            path_length,
            build_id: padded,
            ..SetModule::default()
        });
    }

    /// Adds the type of an exception.
    pub fn thrown<T: Wire>(&mut self, thrown: &T) {
        self.types.add(thrown);
    }

    /// The set. `header`: its purpose and what belongs to that; counts, lengths and checksums are
    /// filled in.
    #[must_use]
    pub fn finish(self, header: SetHeader) -> Vec<u8> {
        let texts = self.texts.len() as u32;
        let payload =
            [self.rules.bytes, self.modules.bytes, self.sites.bytes, self.types.bytes, self.texts].concat();
        let header = SetHeader {
            magic: MAGIC,
            version: VERSION,
            header_size: SetHeader::SIZE as u32,
            file_length: (SetHeader::SIZE + payload.len()) as u64,
            rules: self.rules.count,
            modules: self.modules.count,
            sites: self.sites.count,
            texts,
            payload_checksum: crc32fast::hash(&payload),
            ..header
        };
        let mut bytes = Vec::new();
        bytes.extend(header.to_bytes());
        // The header's own checksum is its last field.
        let end = SetHeader::SIZE - size_of::<u32>();
        let checksum = crc32fast::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(&checksum.to_le_bytes());
        bytes.extend_from_slice(&payload);
        bytes
    }
}

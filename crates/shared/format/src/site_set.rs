//! Site sets: functions of files, by address and build id. They are used for triggers of programs
//! that are started without `record` (`everycall resolve` writes such a set, `EVERYCALL_TRIGGERS`
//! names it), for triggers of clients, and for selections. `docs/format.md` has the layout.
//!
//! ```text
//! SetHeader
//! SetRule[rules]        the triggers, and which calls each one keeps
//! SetModule[modules]    files by their build ids
//! SetSite[sites]        functions, module by module, in the order of their addresses
//! ThrownType[types]     exceptions that triggers wait for
//! texts                 the triggers' texts, and the files' paths
//! ```
//!
//! Readers treat a site set as untrusted input: [`SiteSet::parse`] checks every number before it is
//! used.

use crate::trigger::{RULES, SITES, TYPES, ThrownType};
use crate::wire::{Wire, wire_struct};

/// First bytes of a site set.
pub const MAGIC: u64 = u64::from_le_bytes(*b"\x8fecset\r\n");
/// Version of the format.
pub const VERSION: u32 = 1;
/// File name extension of site sets.
pub const ENDING: &str = ".ecs";
/// Limit on the bytes of a site set.
pub const SIZE_MAX: u64 = 64 << 20;
/// Limit on kept calls of one trigger.
pub const KEEP_MAX: u32 = 1000;
/// Limit on the rules of a selection.
pub const SELECTION_RULES_MAX: u32 = 1 << 16;
/// Limit on the modules of a set.
pub const MODULES_MAX: u32 = 4096;
/// Limit on the functions of a set, counted once for each trigger: as many as have room in an
/// arena.
pub const SITES_MAX: u32 = SITES / 2;

wire_struct! {
    /// The file's first bytes.
    pub struct SetHeader [64] {
        /// [`MAGIC`].
        pub magic: u64,
        /// [`VERSION`].
        pub version: u32,
        /// Bytes of this header.
        pub header_size: u32,
        /// Bytes of the file.
        pub file_length: u64,
        /// Bytes that threads may take beyond their rings while calls of armed functions are open.
        pub memory: u64,
        /// Triggers.
        pub rules: u32,
        /// Modules.
        pub modules: u32,
        /// Functions.
        pub sites: u32,
        /// Bytes of the texts.
        pub texts: u32,
        /// One of [`purpose`].
        pub purpose: u32,
        /// In a selection: 1 if functions of files that aren't in the set are recorded. Otherwise
        /// the number of exception types.
        pub others: u32,
        /// CRC-32 of everything after the header.
        pub payload_checksum: u32,
        /// CRC-32 of the header before this field.
        pub header_checksum: u32,
    }
}

/// [`SetHeader::purpose`].
pub mod purpose {
    /// The set has the functions that triggers name.
    pub const TRIGGERS: u32 = 0;
    /// The set has the functions that are recorded. Each rule's text is `+ PATTERN` or `- PATTERN`;
    /// the rule's other fields are not used.
    pub const SELECTION: u32 = 1;
    /// The set has the functions that a client of the [control socket](crate::control_socket) arms.
    /// Its thresholds are ticks.
    pub const LIVE: u32 = 2;
}

wire_struct! {
    /// A trigger.
    pub struct SetRule [64] {
        /// Calls that take longer are kept; in nanoseconds, not 0. All bits set if the time doesn't
        /// matter.
        pub threshold_ns: u64,
        /// Interval in nanoseconds in which at most one call is kept; 0 for no such limit.
        pub every_ns: u64,
        /// Limit on kept calls, from 1 to [`KEEP_MAX`].
        pub keep: u32,
        /// One of [`keep_by`].
        pub by: u32,
        /// Functions that it names and that are in the set.
        pub functions: u64,
        /// Where its text begins among the texts.
        pub text_offset: u32,
        /// Bytes of its text.
        pub text_length: u32,
        /// Further functions that it names, for which the set had no room.
        pub left_out: u64,
        /// A set of [`throws`].
        pub throws: u32,
        /// Limit on the size of kept calls, in units of 1024 bytes; 0 for no such limit.
        pub keep_kib: u32,
        /// Where the pattern for names of frames by id begins among the texts.
        pub pattern_offset: u32,
        /// Bytes of it; 0 if the rule isn't about frames by id.
        pub pattern_length: u32,
    }
}

/// [`SetRule::throws`]: for which exceptions calls are kept when they are thrown.
pub mod throws {
    /// Exceptions of the types in the set that list the rule.
    pub const TYPES: u32 = 1;
    /// Exceptions of any type.
    pub const ANY: u32 = 2;
    /// Wherever they are thrown. Without this flag: in calls of the rule's functions only.
    pub const ANYWHERE: u32 = 4;
}

/// Limit on the kept calls of a rule that perhaps didn't exceed the threshold
/// ([`crate::trigger::call_flags::PERHAPS`]). [`SetRule::keep`] limits them, too.
pub const KEEP_PERHAPS: u32 = 20;

/// [`SetRule::by`]: which calls stay if there are more than [`SetRule::keep`].
pub mod keep_by {
    /// The slowest.
    pub const SLOWEST: u32 = 0;
    /// The first.
    pub const FIRST: u32 = 1;
    /// The newest.
    pub const NEWEST: u32 = 2;
}

wire_struct! {
    /// A file with functions that triggers name.
    pub struct SetModule [64] {
        /// Bytes of the build id.
        pub build_id_length: u32,
        /// Its first function.
        pub first_site: u32,
        /// Its functions.
        pub sites: u32,
        /// Where its path begins among the texts.
        pub path_offset: u32,
        /// Bytes of its path, as it was when the set was made.
        pub path_length: u32,
        /// Zero.
        pub reserved: [u32; 3],
        /// The build id that the linker put into the file.
        pub build_id: [u8; 32],
    }
}

wire_struct! {
    /// A function that a trigger names. Addresses are those in the file.
    pub struct SetSite [24] {
        /// Its first address.
        pub start: u64,
        /// The address after it.
        pub end: u64,
        /// Index of the trigger.
        pub rule: u32,
        /// A set of [`crate::trigger::site_flags`].
        pub flags: u32,
    }
}

/// Why bytes aren't a valid set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetError {
    /// They aren't a set.
    NoSet,
    /// They are a set of another version.
    Version(u32),
    /// They were truncated or changed, or are inconsistent.
    Damaged,
}

/// A set whose numbers were checked.
#[derive(Clone, Copy, Debug)]
pub struct SiteSet<'a> {
    header: SetHeader,
    rules: &'a [u8],
    modules: &'a [u8],
    sites: &'a [u8],
    types: &'a [u8],
    texts: &'a [u8],
}

impl<'a> SiteSet<'a> {
    /// Parses a whole set. `checksum` returns the CRC-32 of bytes, as zlib's `crc32`.
    ///
    /// # Errors
    ///
    /// The bytes aren't a valid set.
    pub fn parse(bytes: &'a [u8], checksum: impl Fn(&[u8]) -> u32) -> Result<SiteSet<'a>, SetError> {
        // The version comes first: another version may differ in everything else.
        let magic = bytes.get(..8).and_then(|magic| magic.try_into().ok()).map(u64::from_le_bytes);
        let version = bytes.get(8..12).and_then(|version| version.try_into().ok()).map(u32::from_le_bytes);
        match (magic, version) {
            (Some(MAGIC), Some(VERSION)) => {}
            (Some(MAGIC), Some(other)) => return Err(SetError::Version(other)),
            _ => return Err(SetError::NoSet),
        }
        Self::whole(bytes, checksum).filter(SiteSet::makes_sense).ok_or(SetError::Damaged)
    }

    fn whole(bytes: &'a [u8], checksum: impl Fn(&[u8]) -> u32) -> Option<SiteSet<'a>> {
        let header = SetHeader::read(bytes)?;
        let (head, payload) = bytes.split_at_checked(SetHeader::SIZE)?;
        let is_whole = header.header_size as usize == SetHeader::SIZE
            && header.file_length == bytes.len() as u64
            && checksum(head.get(..SetHeader::SIZE - size_of::<u32>())?) == header.header_checksum
            && checksum(payload) == header.payload_checksum;
        if !is_whole {
            return None;
        }
        let (rules, rest) = table(payload, header.rules, SetRule::SIZE)?;
        let (modules, rest) = table(rest, header.modules, SetModule::SIZE)?;
        let (sites, rest) = table(rest, header.sites, SetSite::SIZE)?;
        let types = if header.purpose == purpose::SELECTION { 0 } else { header.others };
        let (types, texts) = table(rest, types, ThrownType::SIZE)?;
        (texts.len() == header.texts as usize).then_some(SiteSet {
            header,
            rules,
            modules,
            sites,
            types,
            texts,
        })
    }

    fn makes_sense(&self) -> bool {
        let has_text = |offset: u32, length: u32| {
            offset.checked_add(length).is_some_and(|end| end as usize <= self.texts.len())
        };
        let rules = (0..self.rule_count()).all(|index| {
            self.rule(index).is_some_and(|rule| {
                let is_trigger = rule.threshold_ns > 0
                    && (1..=KEEP_MAX).contains(&rule.keep)
                    && rule.by <= keep_by::NEWEST;
                (is_trigger || self.is_selection())
                    && has_text(rule.text_offset, rule.text_length)
                    && has_text(rule.pattern_offset, rule.pattern_length)
            })
        });
        let modules = self.modules().all(|module| {
            (1..=32).contains(&module.build_id_length)
                && module.first_site.checked_add(module.sites).is_some_and(|end| end <= self.header.sites)
                && has_text(module.path_offset, module.path_length)
                && self.are_in_order(&module)
        });
        let sites = self.all_sites().all(|site| site.start < site.end && site.rule < self.header.rules);
        let most = if self.is_selection() { SELECTION_RULES_MAX } else { RULES };
        let types = self.types.len() <= TYPES as usize * ThrownType::SIZE
            && self.types().all(|known| known.rules >> self.header.rules.min(31) == 0);
        self.header.purpose <= purpose::LIVE
            && types
            && (1..=most).contains(&self.header.rules)
            && self.header.modules <= MODULES_MAX
            && self.header.sites <= SITES_MAX
            && rules
            && modules
            && sites
    }

    /// Whether a module's functions are ordered by address and then by trigger, and no two of them
    /// overlap without being the same.
    fn are_in_order(&self, module: &SetModule) -> bool {
        let mut last = None;
        self.sites_of(module).all(|site| {
            let follows = last.is_none_or(|(start, end, rule)| {
                site.start >= end || (site.start, site.end) == (start, end) && site.rule > rule
            });
            last = Some((site.start, site.end, site.rule));
            follows
        })
    }

    /// The exception types that triggers name.
    pub fn types(&self) -> impl Iterator<Item = ThrownType> + use<'a> {
        self.types.chunks_exact(ThrownType::SIZE).filter_map(ThrownType::read)
    }

    /// Whether it contains the functions of a client's triggers.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.header.purpose == purpose::LIVE
    }

    /// Whether it contains the functions that are recorded.
    #[must_use]
    pub fn is_selection(&self) -> bool {
        self.header.purpose == purpose::SELECTION
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &SetHeader {
        &self.header
    }

    /// The number of triggers.
    #[must_use]
    pub fn rule_count(&self) -> u32 {
        self.header.rules
    }

    /// A trigger.
    #[must_use]
    pub fn rule(&self, index: u32) -> Option<SetRule> {
        SetRule::read(self.rules.get((index as usize).checked_mul(SetRule::SIZE)?..)?)
    }

    /// The text of a trigger, or the path of a module.
    #[must_use]
    pub fn text(&self, offset: u32, length: u32) -> &'a [u8] {
        let text = self.texts.get(offset as usize..).and_then(|rest| rest.get(..length as usize));
        text.unwrap_or(&[])
    }

    /// The modules.
    pub fn modules(&self) -> impl Iterator<Item = SetModule> + use<'a> {
        self.modules.chunks_exact(SetModule::SIZE).filter_map(SetModule::read)
    }

    fn all_sites(&self) -> impl Iterator<Item = SetSite> + use<'a> {
        self.sites.chunks_exact(SetSite::SIZE).filter_map(SetSite::read)
    }

    /// The functions of a module.
    pub fn sites_of(&self, module: &SetModule) -> impl Iterator<Item = SetSite> + use<'a> {
        self.raw_sites_of(module).chunks_exact(SetSite::SIZE).filter_map(SetSite::read)
    }

    /// The encoded functions of a module: [`SetSite`]s in the order of their addresses.
    #[must_use]
    pub fn raw_sites_of(&self, module: &SetModule) -> &'a [u8] {
        let begin = (module.first_site as usize).saturating_mul(SetSite::SIZE);
        let size = (module.sites as usize).saturating_mul(SetSite::SIZE);
        self.sites.get(begin..).and_then(|rest| rest.get(..size)).unwrap_or(&[])
    }
}

/// The first `count` entries of `size` bytes, and the bytes after them.
fn table(bytes: &[u8], count: u32, size: usize) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked((count as usize).checked_mul(size)?)
}

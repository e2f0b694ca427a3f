//! The sections of a text, and the records of sites in them.

use std::collections::HashMap;
use std::io::{self, Write};

/// A section as its directive names it, with its COMDAT group.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Section {
    directive: Vec<u8>,
    group: Option<Vec<u8>>,
}

impl Section {
    fn text() -> Section {
        Section { directive: b".text".to_vec(), group: None }
    }

    fn of(directive: &[u8], operands: &[u8]) -> Section {
        Section {
            directive: if operands.is_empty() { directive.to_vec() } else { operands.to_vec() },
            group: comdat_group(operands),
        }
    }
}

/// Follows changes of section, and writes records of sites.
pub(super) struct Sections {
    now: Section,
    previous: Section,
    stack: Vec<(Section, Section)>,
    /// The first site in each section, after which the section's records are ordered.
    anchors: HashMap<Section, u32>,
}

impl Sections {
    pub(super) fn new() -> Sections {
        Sections {
            now: Section::text(),
            previous: Section::text(),
            stack: Vec::new(),
            anchors: HashMap::new(),
        }
    }

    /// Whether a directive may change the section.
    pub(super) fn concern(word: &[u8]) -> bool {
        let words: [&[u8]; 7] =
            [b".text", b".data", b".bss", b".section", b".pushsection", b".popsection", b".previous"];
        words.contains(&word)
    }

    /// Whether the current section's name begins with this.
    pub(super) fn is_in(&self, name: &[u8]) -> bool {
        self.now.directive.starts_with(name)
    }

    /// Reads a directive that may change the section.
    pub(super) fn change(&mut self, word: &[u8], directive: &[u8], operands: &[u8]) {
        match word {
            b".text" | b".data" | b".bss" | b".section" => self.enter(directive, operands),
            b".pushsection" => {
                self.stack.push((self.now.clone(), self.previous.clone()));
                self.enter(directive, operands);
            }
            b".popsection" => {
                if let Some((section, previous)) = self.stack.pop() {
                    (self.now, self.previous) = (section, previous);
                }
            }
            b".previous" => std::mem::swap(&mut self.now, &mut self.previous),
            _ => {}
        }
    }

    fn enter(&mut self, directive: &[u8], operands: &[u8]) {
        self.previous = std::mem::replace(&mut self.now, Section::of(directive, operands));
    }

    /// Writes the record of a site in the current section.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub(super) fn record(
        &mut self,
        out: &mut dyn Write,
        site: u32,
        function: u32,
        kind: u32,
    ) -> io::Result<()> {
        let known = self.anchors.get(&self.now).copied();
        let anchor = known.unwrap_or(site);
        out.write_all(b"\t.pushsection everycall_sites,\"ao")?;
        if self.now.group.is_some() {
            out.write_all(b"G")?;
        }
        write!(out, "\",@progbits,.Leverycall_s{anchor}")?;
        if let Some(group) = &self.now.group {
            out.write_all(b",")?;
            out.write_all(group)?;
            out.write_all(b",comdat")?;
        }
        if known.is_none() {
            self.anchors.insert(self.now.clone(), site);
            out.write_all(b";.p2align 2")?;
        }
        write!(out, ";.long .Leverycall_s{site}-.;.long .Leverycall_f{function}-.;.long {kind};.popsection")
    }
}

/// The group in the operands of `.section NAME,"FLAGS",@TYPE[,ENTRY SIZE],GROUP,comdat`.
fn comdat_group(operands: &[u8]) -> Option<Vec<u8>> {
    let mut fields = split_at_commas(operands).into_iter().skip(1);
    let flags = fields.next()?;
    if !flags.contains(&b'G') {
        return None;
    }
    let behind_type = [b'M', b'o'].iter().filter(|flag| flags.contains(flag)).count();
    fields.nth(1 + behind_type).map(<[u8]>::to_vec)
}

fn split_at_commas(operands: &[u8]) -> Vec<&[u8]> {
    let mut quoted = false;
    operands
        .split(|byte| {
            quoted ^= *byte == b'"';
            *byte == b',' && !quoted
        })
        .map(<[u8]>::trim_ascii)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_behind_the_type() {
        assert_eq!(comdat_group(b".x,\"aMSG\",@progbits,1,grp,comdat").as_deref(), Some(&b"grp"[..]));
        assert_eq!(comdat_group(b".text.G,\"ax\",@progbits"), None);
    }
}

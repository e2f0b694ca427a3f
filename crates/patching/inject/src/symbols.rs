//! Dynamic symbols, read from the process's own memory: the file on the disk may be another one.

use std::io;

use crate::memory::Memory;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const STT_GNU_IFUNC: u8 = 10;
/// More than any file has.
const HEADERS_MAX: u16 = 128;
const DYNAMIC_MAX: u64 = 512;
const CHAIN_MAX: u64 = 1 << 16;

/// The address of a function or variable that a mapped file defines; of several versions, the
/// first one. `None` if it has no such symbol, or none that is an address.
///
/// `start`: where the file's first page is mapped.
pub(crate) fn address(memory: &Memory, start: u64, name: &str) -> Option<u64> {
    Dynamic::read(memory, start).ok()??.find(memory, name).ok()?
}

struct Dynamic {
    /// The difference between addresses in memory and in the file.
    bias: u64,
    hash: u64,
    symbols: u64,
    names: u64,
}

impl Dynamic {
    fn read(memory: &Memory, start: u64) -> io::Result<Option<Self>> {
        let header = memory.read(start, 64)?;
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return Ok(None);
        }
        let (at, size, count) = (number(&header, 32), half(&header, 54), half(&header, 56).min(HEADERS_MAX));
        let (mut bias, mut dynamic) = (None, None);
        for index in 0..u64::from(count) {
            let entry = memory.read(start.wrapping_add(at).wrapping_add(index * u64::from(size)), 56)?;
            match word(&entry, 0) {
                PT_LOAD if bias.is_none() => bias = Some(start.wrapping_sub(number(&entry, 16) & !0xfff)),
                PT_DYNAMIC => dynamic = Some(number(&entry, 16)),
                _ => {}
            }
        }
        let (Some(bias), Some(dynamic)) = (bias, dynamic) else { return Ok(None) };
        let mut found = Self { bias, hash: 0, symbols: 0, names: 0 };
        for index in 0..DYNAMIC_MAX {
            let entry = memory.read(bias.wrapping_add(dynamic).wrapping_add(16 * index), 16)?;
            // glibc's loader writes addresses there, musl's leaves the file's.
            let value = number(&entry, 8);
            let value = if value < start { value.wrapping_add(bias) } else { value };
            match number(&entry, 0) {
                0 => break,
                DT_GNU_HASH => found.hash = value,
                DT_SYMTAB => found.symbols = value,
                DT_STRTAB => found.names = value,
                _ => {}
            }
        }
        Ok((found.hash != 0 && found.symbols != 0 && found.names != 0).then_some(found))
    }

    fn find(&self, memory: &Memory, name: &str) -> io::Result<Option<u64>> {
        let header = memory.read(self.hash, 16)?;
        let (buckets, first, bloom) = (word(&header, 0), word(&header, 4), word(&header, 8));
        if buckets == 0 {
            return Ok(None);
        }
        let hash = gnu_hash(name);
        let bucket_at = self.hash.wrapping_add(16 + 8 * u64::from(bloom));
        let chain_at = bucket_at.wrapping_add(4 * u64::from(buckets));
        let bucket = word(&memory.read(bucket_at.wrapping_add(4 * u64::from(hash % buckets)), 4)?, 0);
        let Some(chain) = bucket.checked_sub(first).filter(|_| bucket != 0) else { return Ok(None) };
        for step in 0..CHAIN_MAX {
            let link = word(&memory.read(chain_at.wrapping_add(4 * (u64::from(chain) + step)), 4)?, 0);
            if link | 1 == hash | 1
                && let Some(address) = self.symbol(memory, u64::from(bucket) + step, name)?
            {
                return Ok(Some(address));
            }
            if link & 1 != 0 {
                break;
            }
        }
        Ok(None)
    }

    /// The address of a symbol, if it has this name.
    fn symbol(&self, memory: &Memory, index: u64, name: &str) -> io::Result<Option<u64>> {
        let symbol = memory.read(self.symbols.wrapping_add(24 * index), 24)?;
        let mut expected = name.as_bytes().to_vec();
        expected.push(0);
        let found = memory.read(self.names.wrapping_add(u64::from(word(&symbol, 0))), expected.len())?;
        let kind = symbol.get(4).copied().unwrap_or(0) & 15;
        let is_defined = half(&symbol, 6) != 0 && kind != STT_GNU_IFUNC;
        Ok((found == expected && is_defined).then(|| self.bias.wrapping_add(number(&symbol, 8))))
    }
}

fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    from.get(at..at + N).and_then(|part| part.try_into().ok()).unwrap_or([0; N])
}

fn half(from: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes(from, at))
}

fn word(from: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes(from, at))
}

fn number(from: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(from, at))
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;
    use crate::gadget::c_library;
    use crate::maps::mappings;

    #[test]
    #[allow(unsafe_code)] // The loader's own answer.
    fn symbols_are_those_that_the_loader_finds() {
        let pid = std::process::id().cast_signed();
        let memory = Memory::open(pid).expect("own memory");
        let start = c_library(&mappings(pid).expect("mappings")).expect("a C library");
        for name in ["__errno_location", "getpid", "write", "environ", "dlopen", "mmap"] {
            let text = CString::new(name).expect("a name");
            // SAFETY: a name that ends in zero.
            let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, text.as_ptr()) } as u64;
            if name != "dlopen" || address(&memory, start, name).is_some() {
                assert_eq!(address(&memory, start, name), Some(expected), "{name}");
            }
        }
        assert_eq!(address(&memory, start, "no_such_function"), None);
        // `strlen` has versions for processors.
        assert_eq!(address(&memory, start, "strlen"), None);
        assert_eq!(address(&memory, start + 4096, "getpid"), None);
    }
}

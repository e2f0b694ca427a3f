//! Names of the kernel's functions.

use std::fs;

/// Functions by address.
#[derive(Debug, Default)]
pub struct KernelNames {
    /// Sorted.
    functions: Vec<(u64, Box<str>)>,
}

impl KernelNames {
    /// Reads them. There are none where the kernel hides addresses.
    pub fn read() -> KernelNames {
        // Names need not be UTF-8, and are not to cost all others.
        let text = fs::read("/proc/kallsyms").unwrap_or_default();
        KernelNames::of(&String::from_utf8_lossy(&text))
    }

    fn of(text: &str) -> KernelNames {
        let line = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address != 0)?;
            let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
            let name = words.next()?;
            is_code.then(|| (address, name.into()))
        };
        let mut functions: Vec<(u64, Box<str>)> = text.lines().filter_map(line).collect();
        functions.sort_by_key(|(address, _)| *address);
        KernelNames { functions }
    }

    /// The function that contains an address.
    pub fn at(&self, address: u64) -> Option<&str> {
        let behind = self.functions.partition_point(|(begin, _)| *begin <= address);
        self.functions.get(behind.checked_sub(1)?).map(|(_, name)| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_address() {
        let names = KernelNames::of("20 T second\n10 t first\n18 D data\n30 W third [module]\n");
        assert_eq!(
            [0xf, 0x10, 0x1f, 0x20, 0xfff].map(|at| names.at(at)),
            [None, Some("first"), Some("first"), Some("second"), Some("third")]
        );
        assert_eq!(KernelNames::of("0000 T hidden\n").at(5), None);
    }
}

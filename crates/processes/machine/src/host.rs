//! Facts in a trace about the machine that it was made on.

use everycall_format::ect::meta;

use crate::arch;

/// Texts about the host, as META fields.
#[must_use]
pub fn describe() -> Vec<(u32, Vec<u8>)> {
    let uname = rustix::system::uname();
    let kernel = [uname.sysname(), uname.release(), uname.version()].map(|text| text.to_string_lossy());
    let cpu_info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        cpu_info
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find_map(|(key, value)| (key.trim() == name).then(|| value.trim()))
    };
    let cpu = field("model name").or_else(|| field("CPU part")).unwrap_or("unknown");
    let cpu_count = cpu_info.lines().filter(|line| line.starts_with("processor")).count();
    let clock_source =
        std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    vec![
        (meta::HOST, uname.nodename().to_bytes().to_vec()),
        (meta::KERNEL, kernel.join(" ").into_bytes()),
        (meta::CPU, cpu.as_bytes().to_vec()),
        (meta::CPU_COUNT, cpu_count.to_string().into_bytes()),
        (meta::CLOCK_SOURCE, clock_source.as_deref().unwrap_or("unknown").trim().as_bytes().to_vec()),
        (meta::INVARIANT_COUNTER, if arch::is_invariant(field("flags")) { "yes" } else { "no" }.into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_there() {
        let texts = describe();
        assert_eq!(texts.len(), 6);
        assert!(texts.iter().all(|(_, text)| !text.is_empty()), "{texts:?}");
    }
}

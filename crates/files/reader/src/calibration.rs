//! The cost of hooks.

use everycall_format::Wire;
use everycall_format::calibration::{Calibration, HookPrices, Price, calibration_state};

use crate::model::{ProcessCalibration, Recording};
use crate::payload::{SHORT, TABLE_MAX};

/// Reads what the hooks of the process with index `process` cost; the last chunk of a process
/// counts. `Err` says what is wrong with the payload.
pub(crate) fn read_calibration(
    bytes: &[u8],
    process: usize,
    recording: &mut Recording,
) -> Result<(), &'static str> {
    let record = Calibration::read(bytes).ok_or(SHORT)?;
    add(&record, process, recording)
}

/// Adds what a process has measured, unless that is nothing.
pub(crate) fn add(
    record: &Calibration,
    process: usize,
    recording: &mut Recording,
) -> Result<(), &'static str> {
    let kinds = [record.sites, record.bodies, record.frames];
    let is_measured = record.state == calibration_state::MEASURED;
    if is_measured && !kinds.iter().all(is_in_order) {
        return Err("its prices contradict each other");
    }
    let [sites, bodies, frames] = kinds;
    let cpu_ns = Some(record.cpu_ns).filter(|time| *time != 0);
    let read = ProcessCalibration { process, is_measured, sites, bodies, frames, cpu_ns };
    let known = &mut recording.calibrations;
    match known.iter().position(|known| known.process == process) {
        Some(index) => known[index] = read,
        None if known.len() >= TABLE_MAX => return Err("there are too many"),
        None => known.push(read),
    }
    Ok(())
}

fn is_in_order(prices: &HookPrices) -> bool {
    let is = |price: &Price| price.low <= price.value && price.value <= price.high;
    is(&prices.inside) && is(&prices.outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(record: &Calibration, process: usize, recording: &mut Recording) -> Result<(), &'static str> {
        let bytes = record.to_bytes();
        read_calibration(&bytes, process, recording)
    }

    #[test]
    fn the_last_one_of_a_process_counts() {
        let price = Price { low: 1, value: 2, high: 3 };
        let prices = HookPrices { inside: price, outside: price };
        let state = calibration_state::MEASURED;
        let first = Calibration { state, sites: prices, ..Calibration::default() };
        let last = Calibration { cpu_ns: 7, ..first };
        let mut recording = Recording::default();
        for (record, process) in [(&first, 0), (&first, 1), (&last, 0)] {
            assert_eq!(read(record, process, &mut recording), Ok(()));
        }
        let known: Vec<_> =
            recording.calibrations.iter().map(|known| (known.process, known.cpu_ns)).collect();
        assert_eq!(known, [(0, Some(7)), (1, None)]);
        assert_eq!(recording.calibrations[0].sites, prices);
    }

    #[test]
    fn damaged_and_truncated_records_are_refused() {
        let inside = Price { low: 3, value: 2, high: 1 };
        let sites = HookPrices { inside, outside: Price::default() };
        let record = Calibration { state: calibration_state::MEASURED, sites, ..Calibration::default() };
        let mut recording = Recording::default();
        assert!(read(&record, 0, &mut recording).is_err());
        assert!(read_calibration(&[0; Calibration::SIZE - 1], 0, &mut recording).is_err());
        assert!(recording.calibrations.is_empty());
        let failed = Calibration { state: calibration_state::FAILED, ..record };
        assert_eq!(read(&failed, 0, &mut recording), Ok(()));
        assert!(!recording.calibrations[0].is_measured);
    }
}

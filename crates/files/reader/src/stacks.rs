//! Sampled stacks.

use everycall_format::Wire;
use everycall_format::sched::clock;
use everycall_format::stacks::{
    NO_NODE, StackFile, StackFrame, StackNode, StackSample as Sample, StacksRecord, flags, frame_kind,
};

use crate::model::{Recording, SampledFile, SampledFrame, StackSample};
use crate::payload::SHORT;

const DANGLING: &str = "its tables don't fit together";

/// Adds samples. `Err` says what is wrong with the payload, of which nothing is used then.
pub(crate) fn read_stacks(bytes: &[u8], recording: &mut Recording) -> Result<(), &'static str> {
    let record = StacksRecord::read(bytes).ok_or(SHORT)?;
    if record.clock != clock::MONOTONIC_RAW {
        return Err("its clock is unknown");
    }
    let mut rest = bytes.get(record.record_size as usize..).ok_or(SHORT)?;
    let text = padded(&mut rest, record.text_length)?;
    let names = padded(&mut rest, record.names_length)?;
    let files = table::<StackFile>(&mut rest, record.file_size, record.files.into())?;
    let frames = table::<StackFrame>(&mut rest, record.frame_size, record.frames.into())?;
    let nodes = table::<StackNode>(&mut rest, record.node_size, record.nodes.into())?;
    let samples = table::<Sample>(&mut rest, record.sample_size, record.samples)?;

    let named = |at: u32, length: u32| {
        let name = names.get(at as usize..).and_then(|names| names.get(..length as usize));
        name.map(<[u8]>::to_vec).ok_or(DANGLING)
    };
    let known = recording.stacks.get_or_insert_default();
    let before = (known.files.len(), known.frames.len(), known.nodes.len());
    let file = |file: StackFile| {
        let id = file.build_id.get(..file.build_id_length as usize).ok_or(DANGLING)?;
        Ok(SampledFile { path: named(file.path, file.path_length)?, build_id: id.to_vec() })
    };
    let files = files.map(file).collect::<Result<Vec<_>, _>>()?;
    let frame = |frame: StackFrame| {
        let name = || named(frame.name, frame.name_length);
        Ok(match frame.kind {
            frame_kind::FILE if (frame.file as usize) < files.len() => {
                SampledFrame::File { file: before.0 + frame.file as usize, image_address: frame.address }
            }
            frame_kind::FILE => return Err(DANGLING),
            frame_kind::KERNEL => SampledFrame::Kernel(name()?),
            frame_kind::VDSO => SampledFrame::Vdso(name()?),
            frame_kind::MEMORY => SampledFrame::Memory(frame.address),
            _ => SampledFrame::Other,
        })
    };
    let frames = frames.map(frame).collect::<Result<Vec<_>, _>>()?;
    let node = |(index, node): (usize, StackNode)| {
        let parent = (node.parent != NO_NODE).then_some(node.parent as usize);
        let fits = (node.frame as usize) < frames.len() && parent.is_none_or(|parent| parent < index);
        fits.then(|| (parent.map(|at| before.2 + at), before.1 + node.frame as usize)).ok_or(DANGLING)
    };
    let nodes = nodes.enumerate().map(node).collect::<Result<Vec<_>, _>>()?;
    let sample = |sample: Sample| {
        let node = (sample.node != NO_NODE).then_some(sample.node as usize);
        let Sample { time, pid, tid, flags, .. } = sample;
        let node = node.map(|node| (node < nodes.len()).then_some(before.2 + node).ok_or(DANGLING));
        Ok(StackSample { raw_ns: time, pid, tid, node: node.transpose()?, flags })
    };
    let samples = samples.map(sample).collect::<Result<Vec<_>, _>>()?;

    if !text.is_empty() {
        known.text = text.to_vec();
    }
    known.rate = known.rate.max(record.rate);
    known.has_kernel |= record.flags & flags::KERNEL != 0;
    known.stack_bytes = known.stack_bytes.max(record.stack_bytes);
    known.lost = known.lost.saturating_add(record.lost);
    known.overwritten = known.overwritten.saturating_add(record.overwritten);
    known.throttled = known.throttled.saturating_add(record.throttled);
    known.files.extend(files);
    known.frames.extend(frames);
    known.nodes.extend(nodes);
    known.samples.extend(samples);
    Ok(())
}

/// So many bytes, which are padded to a multiple of 8.
fn padded<'a>(rest: &mut &'a [u8], length: u32) -> Result<&'a [u8], &'static str> {
    let (taken, others) = rest.split_at_checked((length as usize).next_multiple_of(8)).ok_or(SHORT)?;
    *rest = others;
    taken.get(..length as usize).ok_or(SHORT)
}

/// The entries of a table.
fn table<'a, T: Wire>(
    rest: &mut &'a [u8],
    size: u32,
    count: u64,
) -> Result<impl Iterator<Item = T> + use<'a, T>, &'static str> {
    let size = size as usize;
    if size < T::SIZE {
        return Err("its entries are too small");
    }
    let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(size)).ok_or(SHORT)?;
    let (taken, others) = rest.split_at_checked(length).ok_or(SHORT)?;
    *rest = others;
    Ok(taken.chunks_exact(size).filter_map(T::read))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One file, one name, two frames, two nodes, one sample in the inner one.
    fn chunk(change: impl FnOnce(&mut StacksRecord, &mut [StackNode; 2], &mut Sample)) -> Vec<u8> {
        let mut record = StacksRecord {
            record_size: StacksRecord::SIZE as u32,
            flags: flags::KERNEL,
            clock: clock::MONOTONIC_RAW,
            rate: 1000,
            file_size: StackFile::SIZE as u32,
            frame_size: StackFrame::SIZE as u32,
            node_size: StackNode::SIZE as u32,
            sample_size: Sample::SIZE as u32,
            files: 1,
            frames: 2,
            nodes: 2,
            text_length: 4,
            names_length: 11,
            samples: 1,
            lost: 3,
            ..StacksRecord::default()
        };
        let mut nodes = [StackNode { parent: NO_NODE, frame: 0 }, StackNode { parent: 0, frame: 1 }];
        let mut sample = Sample { time: 99, pid: 7, tid: 8, node: 1, flags: 0 };
        change(&mut record, &mut nodes, &mut sample);
        let mut bytes = Vec::new();
        bytes.extend(record.to_bytes());
        bytes.extend(b"text\0\0\0\0/lib/x read\0\0\0\0\0");
        bytes.extend(StackFile { path_length: 6, build_id_length: 1, ..StackFile::default() }.to_bytes());
        let in_file = StackFrame { kind: frame_kind::FILE, address: 16, ..StackFrame::default() };
        bytes.extend(in_file.to_bytes());
        let kernel =
            StackFrame { kind: frame_kind::KERNEL, name: 7, name_length: 4, ..StackFrame::default() };
        bytes.extend(kernel.to_bytes());
        nodes.into_iter().for_each(|node| bytes.extend(node.to_bytes()));
        bytes.extend(sample.to_bytes());
        bytes
    }

    #[test]
    fn chunks_add_up_and_cut_ones_are_refused() {
        let mut recording = Recording::default();
        let whole = chunk(|_, _, _| {});
        read_stacks(&whole, &mut recording).unwrap();
        read_stacks(&whole, &mut recording).unwrap();
        let stacks = recording.stacks.unwrap();
        assert_eq!((stacks.lost, stacks.rate, stacks.has_kernel), (6, 1000, true));
        assert_eq!((stacks.text.as_slice(), stacks.samples.len()), (&b"text"[..], 2));
        for (number, sample) in stacks.samples.iter().enumerate() {
            let file = SampledFrame::File { file: number, image_address: 16 };
            let frames: Vec<_> = stacks.frames_of(sample.node).collect();
            assert_eq!(frames, [&SampledFrame::Kernel(b"read".to_vec()), &file]);
            assert_eq!(stacks.files[number].path, b"/lib/x");
        }
        for end in 0..whole.len() {
            let mut recording = Recording::default();
            assert!(read_stacks(&whole[..end], &mut recording).is_err(), "{end}");
            assert_eq!(recording.stacks.unwrap_or_default().samples, []);
        }
    }

    #[test]
    fn tables_that_dont_fit_together_are_refused() {
        for wrong in [
            chunk(|_, nodes, _| nodes[1].parent = 1),
            chunk(|_, nodes, _| nodes[0].frame = 2),
            chunk(|_, _, sample| sample.node = 2),
            chunk(|record, _, _| record.names_length = 5),
            chunk(|record, _, _| record.samples = u64::MAX),
            chunk(|record, _, _| record.node_size = 4),
            chunk(|record, _, _| record.clock = 9),
        ] {
            assert!(read_stacks(&wrong, &mut Recording::default()).is_err());
        }
        let empty = chunk(|_, _, sample| sample.node = NO_NODE);
        let mut recording = Recording::default();
        read_stacks(&empty, &mut recording).unwrap();
        let stacks = recording.stacks.unwrap();
        assert_eq!(stacks.frames_of(stacks.samples[0].node).count(), 0);
    }
}

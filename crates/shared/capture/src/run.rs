//! Runs a checked program.

use everycall_format::capture::{Instruction, REGISTERS, UNTIL_ZERO, calculation, comparison, operation};

use crate::check::Program;
use crate::float;
use crate::machine::Machine;
use crate::output::Output;
use crate::text::{self, Length};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With so many bytes of output.
    Captured(usize),
    /// The program's condition is false, or can't be evaluated.
    Rejected,
    /// The output is smaller than [`Program::output_max`].
    NoSpace,
}

/// Ways in which an instruction leads to the next one.
enum Step {
    Next,
    Jump(u32),
    /// Memory that it needs can't be read, or an operation has no result.
    Fail,
    Stop(Outcome),
}

impl Program<'_> {
    /// Runs the program, with its capture in `output`.
    pub fn run(&self, machine: &impl Machine, output: &mut [u8]) -> Outcome {
        self.judge(machine, output).0
    }

    /// Runs the program, with its capture in `output`. Returns also which conditions the call
    /// meets, a bit for each.
    pub fn judge(&self, machine: &impl Machine, output: &mut [u8]) -> (Outcome, u32) {
        let mut run = Run {
            program: self,
            machine,
            output: Output::new(output),
            registers: [0; REGISTERS],
            failure: None,
            met: 0,
        };
        let mut at = 0;
        // Jumps lead forwards: each turn raises `at`.
        while let Some(instruction) = self.instruction(at) {
            let next = match run.step(&instruction) {
                Step::Next => at + 1,
                Step::Jump(to) => to as usize,
                Step::Fail => {
                    run.output.fail_item();
                    match run.failure.take() {
                        Some(to) => to as usize,
                        None => return (Outcome::Rejected, run.met),
                    }
                }
                Step::Stop(outcome) => return (outcome, run.met),
            };
            at = next.max(at + 1);
        }
        (Outcome::Captured(run.output.length()), run.met)
    }
}

struct Run<'a, 'o, M> {
    program: &'a Program<'a>,
    machine: &'a M,
    output: Output<'o>,
    registers: [u64; REGISTERS],
    /// Where a failure leads to.
    failure: Option<u32>,
    /// Conditions that the call meets.
    met: u32,
}

impl<M: Machine> Run<'_, '_, M> {
    fn step(&mut self, it: &Instruction) -> Step {
        let left = self.get(it.left);
        let result = match it.operation {
            operation::END => return Step::Stop(Outcome::Captured(self.output.length())),
            operation::REJECT => return Step::Stop(Outcome::Rejected),
            operation::ITEM => {
                self.failure = Some(it.size);
                return written(self.output.begin(it.value as u8));
            }
            operation::GUARD => {
                self.failure = Some(it.size);
                self.output.leave_item();
                return Step::Next;
            }
            operation::MEET => {
                self.met |= 1_u32.checked_shl(it.size).unwrap_or(0);
                return Step::Next;
            }
            operation::JUMP => return Step::Jump(it.size),
            operation::JUMP_IF_ZERO => return if left == 0 { Step::Jump(it.size) } else { Step::Next },
            operation::JUMP_UNLESS_ZERO => return if left != 0 { Step::Jump(it.size) } else { Step::Next },
            operation::FAIL_IF_ZERO => return if left == 0 { Step::Fail } else { Step::Next },
            operation::EMIT => {
                let bytes = left.to_le_bytes();
                return written(self.output.put(bytes.get(..it.size as usize).unwrap_or_default()));
            }
            operation::COPY => return self.copy(left.wrapping_add(it.value), it.size as usize),
            operation::COPY_TEXT => {
                let length = self.length(it.right);
                return written(text::copy(self.machine, left, length, it.size as usize, &mut self.output));
            }
            operation::CONSTANT => Some(it.value),
            operation::REGISTER => self.machine.register(it.size),
            operation::LOAD => self.load(left.wrapping_add(it.value), it.size, it.right != 0),
            operation::CALCULATE => calculate(it.size, left, self.get(it.right)),
            operation::COMPARE => Some(u64::from(compare(it.size, left, self.get(it.right)))),
            operation::COMPARE_TEXT => {
                let length = self.length(it.right);
                let other = self.program.pool_bytes(it.value).unwrap_or_default();
                text::is_like(self.machine, left, length, other, it.size).map(u64::from)
            }
            operation::BITS => {
                Some(bits(left.checked_shr(it.value as u32).unwrap_or(0), it.size, it.right != 0))
            }
            operation::WIDEN_FLOAT => Some(float::widen(left as u32)),
            // The checker has refused it.
            _ => None,
        };
        match (result, self.registers.get_mut(usize::from(it.target))) {
            (Some(value), Some(register)) => {
                *register = value;
                Step::Next
            }
            _ => Step::Fail,
        }
    }

    fn get(&self, register: u8) -> u64 {
        self.registers.get(usize::from(register)).copied().unwrap_or(0)
    }

    fn length(&self, register: u8) -> Length {
        if register == UNTIL_ZERO { Length::UntilZero } else { Length::Bytes(self.get(register)) }
    }

    fn load(&self, address: u64, size: u32, is_signed: bool) -> Option<u64> {
        let mut bytes = [0; 8];
        let size_bytes = size as usize;
        let read = self.machine.read(address, bytes.get_mut(..size_bytes)?);
        (read >= size_bytes).then(|| bits(u64::from_le_bytes(bytes), 8 * size, is_signed))
    }

    fn copy(&mut self, address: u64, size: usize) -> Step {
        let Some(place) = self.output.reserve(size) else { return Step::Stop(Outcome::NoSpace) };
        if self.machine.read(address, place) < size {
            return Step::Fail;
        }
        self.output.keep(size);
        Step::Next
    }
}

fn written(is_written: bool) -> Step {
    if is_written { Step::Next } else { Step::Stop(Outcome::NoSpace) }
}

/// The low `size` bits of a value, extended.
fn bits(value: u64, size: u32, is_signed: bool) -> u64 {
    let up = 64_u32.saturating_sub(size).min(63);
    let high = value << up;
    if is_signed { (high as i64 >> up) as u64 } else { high >> up }
}

fn calculate(how: u32, left: u64, right: u64) -> Option<u64> {
    let (signed_left, signed_right) = (left as i64, right as i64);
    let shift = u32::try_from(right).ok();
    Some(match how {
        calculation::ADD => left.wrapping_add(right),
        calculation::SUBTRACT => left.wrapping_sub(right),
        calculation::MULTIPLY => left.wrapping_mul(right),
        calculation::DIVIDE_SIGNED => signed_left.checked_div(signed_right)? as u64,
        calculation::DIVIDE => left.checked_div(right)?,
        calculation::REST_SIGNED => signed_left.checked_rem(signed_right)? as u64,
        calculation::REST => left.checked_rem(right)?,
        calculation::AND => left & right,
        calculation::OR => left | right,
        calculation::XOR => left ^ right,
        calculation::SHIFT_LEFT => left.checked_shl(shift?)?,
        calculation::SHIFT_RIGHT => left.checked_shr(shift?)?,
        calculation::SHIFT_RIGHT_SIGNED => signed_left.checked_shr(shift?)? as u64,
        _ => return None,
    })
}

fn compare(how: u32, left: u64, right: u64) -> bool {
    let is_ordered = !float::is_nan(left) && !float::is_nan(right);
    match how {
        comparison::EQUAL => left == right,
        comparison::LESS => left < right,
        comparison::LESS_SIGNED => (left as i64) < right as i64,
        comparison::EQUAL_FLOAT => is_ordered && float::rank(left) == float::rank(right),
        comparison::LESS_FLOAT => is_ordered && float::rank(left) < float::rank(right),
        comparison::LESS_EQUAL_FLOAT => is_ordered && float::rank(left) <= float::rank(right),
        _ => false,
    }
}

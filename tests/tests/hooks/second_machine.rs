//! The runtime for 64-bit Arm that this machine builds: the registers that it uses, as binutils'
//! disassembler reads them.

use std::path::Path;
use std::process::Command;

use everycall_kit::FILES;

/// Branches and addresses: their targets may look like registers.
const WITH_TARGETS: [&str; 9] = ["b", "bl", "cbz", "cbnz", "tbz", "tbnz", "adr", "adrp", "udf"];
/// The hooks that sites call, and the registers that they may use: a function needs none of them at
/// its entry or exit. x30 is the site's address.
const HOOKS: [&str; 4] =
    ["everycall_entry", "everycall_exit", "everycall_tail_exit", "everycall_count_entry"];
const FREE: [u32; 8] = [9, 10, 11, 12, 13, 14, 15, 30];

/// The number of a register in an operand, if it begins with this letter.
fn register(operand: &str, letter: char) -> Option<u32> {
    let number = operand.strip_prefix(letter)?;
    number.split('.').next()?.parse().ok().filter(|number| *number < 32)
}

/// A mnemonic and its operands.
type Code = (String, Vec<String>);

/// The functions' names, and their instructions.
fn functions(object: &[u8]) -> Vec<(String, Vec<Code>)> {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("everycall-rt-of-arm.o");
    std::fs::write(&file, object).unwrap();
    let output = Command::new("aarch64-linux-gnu-objdump")
        .args(["-d", "--no-show-raw-insn"])
        .arg(&file)
        .output()
        .expect("the machine that built the runtime has its binutils");
    let mut functions: Vec<(String, Vec<Code>)> = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some(name) = line.split_once(" <").and_then(|(_, name)| name.strip_suffix(">:")) {
            functions.push((name.to_owned(), Vec::new()));
        } else if let (Some((_, text)), Some((_, code))) = (line.split_once(":\t"), functions.last_mut()) {
            let (mnemonic, rest) = text.split_once('\t').unwrap_or((text, ""));
            let rest = rest.split("//").next().unwrap_or_default();
            let operands = rest.split(|letter: char| !letter.is_alphanumeric() && !"._".contains(letter));
            code.push((mnemonic.trim().to_owned(), operands.map(str::to_owned).collect()));
        }
    }
    functions
}

/// A kit that was built where there are no tools for that machine has no such files.
#[test]
fn the_runtime_for_arm_leaves_vector_registers_alone() {
    for (name, object) in FILES.iter().filter(|(name, _)| *name == "aarch64/everycall-rt.o") {
        let functions = functions(object);
        assert!(functions.len() > 300, "{name}: {} functions", functions.len());
        for (function, code) in &functions {
            // It shows them to the runtime, by storing them.
            let stores = |mnemonic: &str| function == "everycall_slow_common" && mnemonic == "stp";
            for (mnemonic, operands) in code {
                let is_branch = WITH_TARGETS.contains(&mnemonic.as_str()) || mnemonic.starts_with("b.");
                let has_vector = operands.iter().any(|operand| {
                    ['q', 'v', 'd', 's', 'h', 'b', 'z'].iter().any(|kind| register(operand, *kind).is_some())
                });
                assert!(
                    is_branch || !has_vector || stores(mnemonic),
                    "{name}, {function}: {mnemonic} {operands:?}"
                );
            }
        }
        for hook in HOOKS {
            let (_, code) = functions.iter().find(|(function, _)| function == hook).unwrap();
            // That of tail exits returns from the slow path.
            assert!(code.len() > 10, "{name}: {hook}");
            for (mnemonic, operands) in code {
                let used =
                    operands.iter().filter_map(|operand| register(operand, 'x').or(register(operand, 'w')));
                for number in used {
                    assert!(FREE.contains(&number), "{name}, {hook}: {mnemonic} {operands:?}");
                }
            }
        }
    }
}

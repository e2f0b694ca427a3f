//! The checker refuses plans that are broken in any one place.

use std::path::Path;
use std::process::Command;

use everycall_rewrite::check::{Rule, check};
use everycall_rewrite::{Analysis, HookKind, HookLayout, Island, Patch, PatchKind, Plan, RewriteError};

/// A program's file, and the plan for it.
fn planned(options: &[&str]) -> (Vec<u8>, Plan) {
    planned_for(options, "calls.c")
}

fn planned_for(options: &[&str], source: &str) -> (Vec<u8>, Plan) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("calls");
    let status = Command::new("gcc").args(options).arg(source).arg("-o").arg(&output).status();
    assert!(status.expect("gcc").success());
    let file = std::fs::read(output).expect("a file");
    let analysis = Analysis::of(&file, None).expect("an analysis");
    let plan = analysis.plan(HookLayout::default(), &|_, _| true).expect("a plan");
    (file, plan)
}

/// The index of the first patch of this kind, of at least so many bytes.
fn patch(plan: &Plan, kind: PatchKind, length: usize) -> usize {
    let found = plan.patches.iter().position(|patch| patch.kind == kind && patch.new.len() >= length);
    found.unwrap_or_else(|| panic!("no {kind:?}"))
}

/// The offset in the trampolines of a function's first hook call of this kind.
fn call(plan: &Plan, kind: HookKind) -> usize {
    let call = plan.calls.iter().find(|call| call.kind == kind).expect("a call");
    (call.at - plan.hooks.reserved) as usize
}

/// The trampoline of a first call is as it must be, byte by byte.
#[test]
fn a_first_call_goes_where_it_went() {
    let assembler = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/tactics.s");
    let options = ["-O1", "-mno-red-zone", assembler.to_str().expect("a path")];
    let (file, plan) = planned_for(&options, "tactics.c");
    check(&file, &plan).expect("the plan as it is");
    let call = patch(&plan, PatchKind::Call, 4);
    let is_its = |hook: &&everycall_rewrite::HookCall| {
        hook.function == plan.patches[call].function && hook.kind == HookKind::Entry
    };
    // Behind an instruction of five bytes, and before 18 of others.
    let hook = plan.calls.iter().find(is_its).expect("its hook").at - plan.hooks.reserved;
    let trampoline = hook as usize - 5..hook as usize + 5 + 18;
    for (at, in_patch) in trampoline.map(|at| (at, false)).chain((0..4).map(|at| (at, true))) {
        let mut broken = plan.clone();
        let bytes = if in_patch { &mut *broken.patches[call].new } else { &mut broken.code };
        bytes[at] ^= 1;
        assert!(check(&file, &broken).is_err(), "{at} {in_patch}");
    }
}

#[test]
fn each_rule_is_kept() {
    let (file, plan) = planned(&["-O2"]);
    check(&file, &plan).expect("the plan as it is");
    let window = patch(&plan, PatchKind::Window, 6);
    let tail = patch(&plan, PatchKind::Displacement, 4);
    type Break = Box<dyn Fn(&mut Plan)>;
    let breaks: Vec<(&str, &[Rule], Break)> = vec![
        ("the region within the module", &[Rule::Places], Box::new(|plan| plan.region = 0)),
        ("the region too far away", &[Rule::Places], Box::new(|plan| plan.region = -(5 << 30))),
        (
            "an island in the region",
            &[Rule::Places],
            Box::new(|plan| plan.islands.push(Island { at: plan.region + 8, bytes: [0xe9, 0, 0, 0, 0] })),
        ),
        (
            "a patch twice",
            &[Rule::Disjoint],
            Box::new(move |plan| plan.patches.insert(window, plan.patches[window].clone())),
        ),
        ("patches out of order", &[Rule::Disjoint], Box::new(|plan| plan.patches.reverse())),
        (
            "a patch on two pages",
            &[Rule::Pages],
            Box::new(|plan| plan.patches.last_mut().expect("one").at |= 4095),
        ),
        ("other old bytes", &[Rule::OldBytes], Box::new(move |plan| plan.patches[window].old[2] ^= 1)),
        ("no jump", &[Rule::NewBytes], Box::new(move |plan| plan.patches[window].new[0] = 0x90)),
        ("a jump elsewhere", &[Rule::NewBytes], Box::new(move |plan| plan.patches[window].new[4] ^= 0x20)),
        (
            "a jump into a trampoline",
            &[Rule::Trampoline, Rule::NewBytes],
            Box::new(move |plan| plan.patches[window].new[1] ^= 1),
        ),
        ("code behind the jump", &[Rule::NewBytes], Box::new(move |plan| plan.patches[window].new[5] = 0x90)),
        (
            "a tail call's jump elsewhere",
            &[Rule::NewBytes, Rule::Trampoline],
            Box::new(move |plan| plan.patches[tail].new[0] ^= 8),
        ),
        (
            "a displacement that isn't a jump's",
            &[Rule::NewBytes, Rule::Targets],
            Box::new(move |plan| plan.patches[window].kind = PatchKind::Displacement),
        ),
        (
            "a slot in code",
            &[Rule::NewBytes, Rule::Targets],
            Box::new(move |plan| plan.patches[window].kind = PatchKind::Slot),
        ),
        (
            "another hook",
            &[Rule::Trampoline],
            Box::new(|plan| {
                let at = call(plan, HookKind::Exit);
                plan.code[at + 1] ^= 4;
            }),
        ),
        (
            "an entry's hook at an exit",
            &[Rule::Trampoline],
            Box::new(|plan| {
                let call = plan.calls.iter_mut().find(|call| call.kind == HookKind::Exit).expect("a call");
                call.kind = HookKind::Entry;
            }),
        ),
        ("another function's hook", &[Rule::Trampoline], Box::new(|plan| plan.calls[0].function += 1)),
        (
            "no hook",
            &[Rule::Trampoline],
            Box::new(|plan| {
                let at = call(plan, HookKind::Exit);
                plan.code[at..at + 5].copy_from_slice(&[0x0f, 0x1f, 0x44, 0, 0]);
            }),
        ),
        (
            "an instruction that wasn't there",
            &[Rule::Trampoline],
            Box::new(|plan| {
                let at = call(plan, HookKind::Entry) + 5;
                plan.code[at] ^= 0x08;
            }),
        ),
        ("a patch too few", &[Rule::Complete], Box::new(move |plan| _ = plan.patches.remove(tail))),
        ("a hook that isn't reached", &[Rule::Complete, Rule::Trampoline], {
            Box::new(|plan| {
                let mut call = plan.calls[0];
                call.at = plan.hooks.reserved + plan.code.len() as u32;
                plan.code.extend([0xe8, 0, 0, 0, 0]);
                plan.calls.push(call);
            })
        }),
        ("a move to elsewhere", &[Rule::Moves], Box::new(|plan| plan.moves[0].to += 1)),
        ("a move too few", &[Rule::Moves], Box::new(|plan| _ = plan.moves.remove(0))),
        (
            "a displacement to the module too few",
            &[Rule::Displacements],
            Box::new(|plan| _ = plan.to_module.remove(3)),
        ),
        ("a displacement elsewhere", &[Rule::Displacements], Box::new(|plan| plan.to_module[5] += 1)),
        (
            "a hook's call that leads to the module",
            &[Rule::Displacements],
            Box::new(|plan| plan.to_module.insert(0, plan.calls[0].at + 1)),
        ),
        ("another module", &[Rule::Places], Box::new(|plan| plan.module.end += 4096)),
        ("rows out of order", &[Rule::Rows], Box::new(|plan| plan.rows.swap(0, 1))),
        ("a row without a state", &[Rule::Rows], Box::new(|plan| plan.rows[0].state = Some(u32::MAX))),
    ];
    for (what, rules, change) in breaks {
        let mut broken = plan.clone();
        change(&mut broken);
        let violation = check(&file, &broken).expect_err(what);
        assert!(rules.contains(&violation.rule), "{what}: {violation}");
    }
}

fn tactics() -> (Vec<u8>, Plan) {
    let tactics = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/tactics.s");
    planned_for(&["-O1", "-x", "assembler", tactics.to_str().expect("a path"), "-x", "c"], "tactics.c")
}

/// A return that isn't replaced has a hook only if nothing leads to it any more.
#[test]
fn a_return_that_something_still_leads_to_is_found() {
    let (file, plan) = tactics();
    let function = plan.functions.iter().position(|function| function.name == "returns").expect("it");
    let start = plan.functions[function].start;
    let own = plan.patches.iter().enumerate();
    let own = own.filter(|(_, patch)| patch.function as usize == function && patch.at != start);
    let own: Vec<(usize, PatchKind)> = own.map(|(index, patch)| (index, patch.kind)).collect();
    let kinds: Vec<PatchKind> = own.iter().map(|(_, kind)| *kind).collect();
    assert_eq!(kinds, [PatchKind::Displacement, PatchKind::Window]);
    for (index, kind) in own {
        let mut broken = plan.clone();
        broken.patches.remove(index);
        let violation = check(&file, &broken).expect_err("a patch too few");
        let rules = [Rule::Complete, Rule::Moves];
        assert!(rules.contains(&violation.rule), "{kind:?}: {violation}");
        // The jump leads where it led before.
        let mut broken = plan.clone();
        let patch = &mut broken.patches[index];
        if kind == PatchKind::Displacement {
            patch.new = patch.old.clone();
            let violation = check(&file, &broken).expect_err("a jump to the return");
            assert_eq!(violation.rule, Rule::NewBytes, "{violation}");
        }
    }
}

/// At any distance in reach, a moved plan is as right as the first one.
#[test]
fn a_moved_plan_is_right() {
    const PAGE: i64 = 4096;
    for (options, islands) in [(&["-O2"][..], 0), (&["-O0", "-no-pie"], 0), (&["-Os"], 0), (&[], 1)] {
        let (file, first) = if islands > 0 { tactics() } else { planned(options) };
        let mut plan = first.clone();
        assert_eq!(plan.islands.len(), islands);
        let (low, high) = (*plan.reach().start(), *plan.reach().end());
        assert!(low < first.region && first.region < high);
        assert!(high - low > 3 << 30, "{low:#x} {high:#x}");
        let (before, behind) = (plan.module.start as i64, plan.module.end as i64);
        let below = (before - plan.region_size() as i64) & -PAGE;
        let above = (behind + PAGE - 1) & -PAGE;
        for region in [(low + PAGE - 1) & -PAGE, below, above, high & -PAGE, first.region + (12 << 20)] {
            plan.move_region(region).unwrap_or_else(|error| panic!("{options:?} {region:#x}: {error}"));
            assert_eq!(plan.region, region);
            check(&file, &plan).unwrap_or_else(|wrong| panic!("{options:?} {region:#x}: {wrong}"));
        }
        let last = plan.clone();
        let within_islands: Vec<i64> = plan.islands.iter().map(|island| island.at & -PAGE).collect();
        for region in [(low - 1) & -PAGE, (high + PAGE) & -PAGE, before & -PAGE, first.region + 1, i64::MAX]
            .into_iter()
            .chain(within_islands)
        {
            assert_eq!(plan.move_region(region), Err(RewriteError::NoPlace), "{options:?} {region:#x}");
            assert_eq!(plan, last);
        }
        plan.move_region(first.region).expect("back");
        assert_eq!(plan, first);
    }
}

/// Hooks at other places, in a region that begins earlier or later.
#[test]
fn a_plan_with_other_hooks_is_right() {
    let (file, first) = planned(&["-O2", "-fcf-protection=full"]);
    let mut plan = first.clone();
    let first_call = |plan: &Plan| plan.region + i64::from(plan.calls[0].at);
    for (reserved, entry) in [(64 << 10, 0), (8192, 4096), (4096, 512), (1 << 20, 16)] {
        let hooks = HookLayout { reserved, entry, exit: entry + 16, tail_exit: entry + 64 };
        plan.set_hooks(hooks).expect("a place");
        assert_eq!((plan.hooks, first_call(&plan)), (hooks, first_call(&first)));
        check(&file, &plan).unwrap_or_else(|wrong| panic!("{hooks:?}: {wrong}"));
    }
    let last = plan.clone();
    for reserved in [4097, 1 << 30] {
        let hooks = HookLayout { reserved, ..HookLayout::default() };
        assert_eq!(plan.set_hooks(hooks), Err(RewriteError::NoPlace));
        assert_eq!(plan, last);
    }
    plan.set_hooks(first.hooks).expect("back");
    assert_eq!(plan, first);
}

/// Counters move with the region, and what counts them leads there.
#[test]
fn a_moved_counting_plan_is_right() {
    let (file, _) = planned(&["-O2"]);
    let analysis = Analysis::of(&file, None).expect("an analysis");
    let first = analysis.counting(&|_, _| true).expect("a plan");
    let mut moved = first.clone();
    for start in [first.range().start - (64 << 20), (moved.plan.module.end as i64 + 4095) & -4096] {
        moved.move_to(start).expect("a place");
        let range = moved.range();
        assert_eq!(range.start, start);
        assert_eq!(range.end - range.start, (moved.counters_size() + moved.plan.region_size()) as i64);
        // The displacement of the last function's addition.
        let last = moved.plan.functions.len() - 1;
        let field = 16 * last + 4;
        let value = i32::from_le_bytes(moved.region[field..field + 4].try_into().expect("4 bytes"));
        let counter = moved.plan.region + field as i64 + 4 + i64::from(value);
        assert_eq!(counter, moved.counters + 8 * last as i64);
    }
    moved.move_to(first.range().start).expect("back");
    assert_eq!(moved, first);
}

/// A patch that covers what is jumped to.
#[test]
fn known_targets_within_patches_are_found() {
    let (file, plan) = planned(&["-O1"]);
    let mut found = 0;
    for index in 0..plan.patches.len() {
        let mut broken = plan.clone();
        let next = plan.patches.get(index + 1).map_or(u64::MAX, |patch| patch.at);
        let patch = &mut broken.patches[index];
        let length = (next - patch.at).min(64);
        // In this file, code is where it is loaded.
        let bytes = &file[patch.at as usize..(patch.at + length) as usize];
        let mut new = patch.new.to_vec();
        new.resize(length as usize, 0xcc);
        (patch.old, patch.new) = (bytes.into(), new.into());
        found += usize::from(check(&file, &broken).is_err_and(|wrong| wrong.rule == Rule::Targets));
    }
    assert!(found > 10, "{found} of {}", plan.patches.len());
}

/// Every byte of the trampolines matters: none can change without being noticed, but for what an
/// instruction that isn't run any more has.
#[test]
fn changed_trampolines_are_noticed() {
    let (file, plan) = planned(&["-O2"]);
    let copied = plan.patches.iter().filter(|patch| patch.kind == PatchKind::Copy).count();
    let mut unnoticed = Vec::new();
    for at in (0..plan.code.len()).step_by(7) {
        let mut broken = plan.clone();
        broken.code[at] ^= 0x10;
        if check(&file, &broken).is_ok() {
            unnoticed.push(at);
        }
    }
    assert!(unnoticed.len() <= 2 * copied, "{unnoticed:?} of {}", plan.code.len());
}

/// A library of one function in assembler.
fn assembled(text: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, output) = (folder.path().join("one.s"), folder.path().join("one.so"));
    std::fs::write(&source, text).expect("a source");
    let mut gcc = Command::new("gcc");
    let status = gcc.args(["-shared", "-nostdlib"]).arg(&source).arg("-o").arg(&output).status();
    assert!(status.expect("gcc").success());
    std::fs::read(output).expect("a file")
}

/// Clang's tables lead to the function's end where an entry is never used: others follow.
#[test]
fn tables_go_on_behind_entries_that_are_never_used() {
    let file = assembled(
        ".globl f\n.type f,@function\nf:\n.cfi_startproc\ncmp $2, %edi\nja 2f\n\
         lea t(%rip), %rdx\nmovslq (%rdx,%rdi,4), %rcx\nadd %rdx, %rcx\njmp *%rcx\n\
         1: mov $7, %eax\nret\n2: mov $1, %al\n3: xor %eax, %eax\nret\n4: .cfi_endproc\n.size f, .-f\n\
         .skip 16, 0xcc\n.section .rodata\nt: .long 1b - t, 4b - t, 3b - t\n",
    );
    let code = [0xb0, 1, 0x31, 0xc0, 0xc3];
    let at = file.windows(code.len()).position(|bytes| bytes == code).expect("the code") as u64 + 2;
    let analysis = Analysis::of(&file, None).expect("an analysis");
    let plan = analysis.plan(HookLayout::default(), &|_, _| true).expect("a plan");
    assert_eq!(plan.functions.len(), 1, "{:?}", plan.left_out);
    let over = plan.patches.iter().find(|patch| patch.at < at && at < patch.at + patch.new.len() as u64);
    assert_eq!(over, None, "{at:#x}");
    assert!(plan.patches.iter().any(|patch| patch.at == at));
}

/// Entries, exits, padding, long jumps and a copy at each distance from the end of a page: no patch
/// is on two pages, and only entries and exits next to the end are left out for it.
#[test]
fn patches_end_with_their_page() {
    const PAGE: u64 = 4096;
    let function = |name: &str, body: &str| {
        format!(
            ".globl {name}\n.type {name},@function\n{name}:\n.cfi_startproc\n{body}\n\
             .cfi_endproc\n.size {name}, .-{name}\n"
        )
    };
    let bodies = [
        "mov $5, %esi\ncall helper\nadd $7, %eax\npop %rbx\nret",
        "mov $5, %esi\ncall helper\npop %rbx\nret\n.skip 9, 0xcc",
        "mov $5, %esi\ncall helper\n.byte 0x0f, 0x85\n.long helper - . - 4\n.byte 0xe9\n.long helper - . - 4",
        "1: add $3, %eax\ndec %edi\njns 1b\nret\n.skip 9, 0xcc",
        "mov $5, %esi\ncall helper\ncmp $1, %eax\n.byte 0x0f, 0x84\n.long 1f - . - 4\n\
         lea 1(%rax, %rax), %eax\n1: ret",
    ];
    let mut text = function("helper", "lea 3(%rdi), %eax\nadd %esi, %eax\nret");
    for (number, body) in bodies.iter().enumerate() {
        for before in 1..=36 {
            let name = format!("f{number}_{before}");
            text += &format!(".p2align 12\n.skip {PAGE} - {before}, 0xcc\n{}", function(&name, body));
        }
    }
    let file = assembled(&text);
    let analysis = Analysis::of(&file, None).expect("an analysis");
    let plan = analysis.plan(HookLayout::default(), &|_, _| true).expect("a plan that is right");
    let on_two = |patch: &&Patch| patch.at / PAGE != (patch.at + patch.new.len() as u64 - 1) / PAGE;
    assert_eq!(plan.patches.iter().find(on_two), None);
    for left_out in &plan.left_out {
        let name = &left_out.name;
        let before = name.rsplit('_').next().and_then(|before| before.parse().ok());
        assert!(before.is_some_and(|before: u64| before < 23), "{name}: {:?}", left_out.refusal);
    }
    assert!(plan.left_out.len() < 40, "{:?}", plan.left_out);
}

/// gcc leaves NOPs and a `ret` behind returns with patchable sites: nothing reaches them.
#[test]
fn code_that_nothing_reaches_is_moved_too() {
    let text = ".globl dead\n.type dead,@function\ndead:\n.cfi_startproc\n\
                mov $1, %eax\nadd $2, %eax\nret\n.byte 0x0f, 0x1f, 0x40, 0x00\nret\n\
                .cfi_endproc\n.size dead, .-dead\n";
    let file = assembled(text);
    let analysis = Analysis::of(&file, None).expect("an analysis");
    let plan = analysis.plan(HookLayout::default(), &|_, _| true).expect("a plan that is right");
    assert!(plan.functions.iter().any(|function| function.name == "dead"), "{:?}", plan.left_out);
}

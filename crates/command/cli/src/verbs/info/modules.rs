//! Executables and libraries, and their hooks.

use std::fmt::{self, Write};

use everycall_units::{Count, Several};
use serde_json::{Value, json};

use super::facts::{Report, hooked};
use super::layout::{LISTED, heading, more};
use crate::output::clean;
use crate::untouched::hooks_of;

/// As text.
pub fn text(out: &mut String, report: &Report<'_>) -> fmt::Result {
    // Several processes may load the same file.
    let all = report.trace.modules().iter().enumerate();
    let modules: Vec<_> = all.filter(|(index, module)| module.same_file == *index).collect();
    heading(out, &Several(modules.len() as u64, "module", "modules").to_string())?;
    for (index, module) in modules.iter().take(LISTED) {
        let path = clean(&module.path_lossy());
        let id: String = module.build_id.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let id = if id.is_empty() { "no build id".to_owned() } else { format!("build id {id}...") };
        let mut notes = vec![id];
        if let Some(frames) = report.trace.frames_of(module) {
            let of_codes = frames.codes.len() as u64;
            let of_ids = (frames.names.len() as u64).saturating_sub(of_codes);
            notes = vec![Several(of_ids, "name", "names").to_string()];
            if frames.lost > 0 {
                notes.push(format!("{} more found no room", Count(frames.lost)));
            }
            if of_codes > 0 {
                notes.push(format!("{} of generated code", Several(of_codes, "name", "names")));
            }
            if frames.codes_lost > 0 {
                notes.push(format!("{} of generated code couldn't be used", Count(frames.codes_lost)));
            }
        }
        if module.sites > 0 {
            notes.push(Several(module.sites.into(), "site", "sites").to_string());
        }
        if module.sites_unpatched > 0 {
            notes.push(format!("{} not switched on", Count(module.sites_unpatched.into())));
        }
        let (hooks, reasons) = hooked(report.trace, module).map(|file| hooks_of(&file)).unzip();
        notes.extend(hooks);
        if module.unloaded_ticks.is_some() {
            notes.push("unloaded".to_owned());
        }
        if report.file.has_symbols(u32::try_from(*index).unwrap_or(u32::MAX)) {
            notes.push("its symbols are in the file".to_owned());
        }
        writeln!(out, "  {}", if path.is_empty() { "(no path)" } else { &path })?;
        writeln!(out, "      {}", notes.join(", "))?;
        for reason in reasons.into_iter().flatten() {
            writeln!(out, "        {reason}")?;
        }
    }
    more(out, modules.len())
}

/// As JSON.
pub fn json(report: &Report<'_>) -> Value {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    // Of each file once: several processes may load it.
    let files = report.trace.modules().iter().enumerate().map(|(index, module)| {
        let own = (module.same_file == index).then_some(module)?;
        let file = hooked(report.trace, own)?;
        let left_out = file.left_out.iter().map(|(why, count)| (why.name().to_owned(), json!(count)));
        Some(json!({
            "functions": file.functions,
            "hooked": file.hooked,
            "not_chosen": file.not_chosen,
            "left_out": left_out.collect::<serde_json::Map<_, _>>(),
        }))
    });
    let hooks: Vec<Option<Value>> = files.collect();
    let modules = report.trace.modules().iter().zip(0..).map(|(module, index)| {
        let frames = report.trace.frames_of(module);
        json!({
            "process": module.process,
            "frames": frames.map(|frames| json!({
                "names": frames.names.len().saturating_sub(frames.codes.len()),
                "names_lost": frames.lost,
                "code_names": frames.codes.len(),
                "code_names_lost": frames.codes_lost,
            })),
            "path": module.path_lossy(),
            "build_id": hex(&module.build_id),
            "executable": module.is_executable,
            "base": module.base,
            "start": module.start,
            "end": module.end,
            "sites": module.sites,
            "sites_unpatched": module.sites_unpatched,
            "hooks": hooks.get(module.same_file).cloned().flatten(),
            "unloaded": module.unloaded_ticks.is_some(),
            "has_symbols": report.file.has_symbols(index),
        })
    });
    modules.collect()
}

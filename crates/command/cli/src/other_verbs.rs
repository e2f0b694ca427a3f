//! Hints for users who type another tool's verb.

/// The command to run instead of `verb`, a verb of uftrace, perf or XRay.
pub fn hint(verb: &str) -> Option<&'static str> {
    Some(match verb {
        "account" | "top" | "annotate" => {
            "`everycall report FILE` has calls, times and percentiles of each function"
        }
        "stat" => "`everycall info FILE` counts calls, losses and time",
        "graph" | "stack" => {
            "`everycall report --tree FILE` shows all call paths with their times; `everycall replay FILE` shows every call"
        }
        "diff" => "`everycall report --diff OLD NEW` compares runs",
        "dump" | "script" => {
            "`everycall replay FILE` prints every call (`-f json`: as JSON lines); `everycall snapshot PID` writes FILE for a running program"
        }
        "convert" => "`everycall export -f vizviewer|perfetto|chrome FILE` writes a trace for viewers",
        "gui" | "timechart" => {
            "`everycall view FILE` shows a trace in the browser, `everycall tui FILE` in the terminal"
        }
        "live" => {
            "run `everycall record -- PROGRAM`, then `everycall replay FILE`; for a running program, `everycall snapshot PID`"
        }
        "recv" => "`everycall record --stream` writes while the program runs",
        "list" => {
            "`everycall ps` lists running traced programs; `everycall functions PID` lists their functions"
        }
        "attach" => {
            "`everycall snapshot PID` writes the latest calls of a running program; `everycall trace PID PATTERN` records chosen functions"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;

    /// Each suggested command exists.
    #[test]
    fn hints_name_existing_verbs() {
        use clap::CommandFactory;
        let command = Arguments::command();
        let known: Vec<_> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
        for verb in
            ["diff", "stat", "dump", "graph", "gui", "live", "script", "top", "account", "convert", "stack"]
        {
            assert!(!known.iter().any(|name| name == verb));
            let hint = hint(verb).unwrap_or_else(|| panic!("{verb}"));
            let named = hint.split("`everycall ").nth(1).and_then(|rest| rest.split([' ', '`']).next());
            assert!(known.iter().any(|name| Some(name.as_str()) == named), "{hint}");
        }
        assert_eq!(hint("unknown"), None);
    }
}

//! Verbs of other tools, and which of ours does that.

/// What to run instead of `verb`, which is uftrace's, perf's or XRay's.
pub fn hint(verb: &str) -> Option<&'static str> {
    Some(match verb {
        "report" | "account" | "top" => {
            "`everycall info FILE` lists the functions with the most calls and the most own time"
        }
        "stat" => "`everycall info FILE` counts calls, losses and time",
        "graph" | "stack" => {
            "`everycall replay FILE` shows calls as a tree; `everycall export -f perfetto FILE` is for graphs in a viewer"
        }
        "dump" | "script" => {
            "`everycall replay FILE` prints every call, with `-f json` for programs; of a program that runs, `everycall snapshot PID` gets them"
        }
        "convert" => "`everycall export -f vizviewer|perfetto|chrome FILE` writes a trace for viewers",
        "tui" | "gui" | "view" | "timechart" => {
            "`everycall replay FILE | less -R` shows calls as a tree; `everycall export FILE` writes a trace for viewers"
        }
        "live" | "trace" => {
            "`everycall record -- PROGRAM` and then `everycall replay FILE`; of a program that runs, `everycall snapshot PID`"
        }
        "recv" => "`everycall record --stream` writes while the program runs",
        "list" => "`everycall ps` lists the traced programs that run",
        "attach" => "`everycall snapshot PID` gets the calls of a program that runs",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;

    /// What is suggested can be typed.
    #[test]
    fn hints_name_verbs_that_there_are() {
        use clap::CommandFactory;
        let command = Arguments::command();
        let known: Vec<_> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
        for verb in
            ["report", "stat", "dump", "graph", "tui", "live", "script", "top", "account", "convert", "stack"]
        {
            assert!(!known.iter().any(|name| name == verb));
            let hint = hint(verb).unwrap_or_else(|| panic!("{verb}"));
            let named = hint.split("`everycall ").nth(1).and_then(|rest| rest.split([' ', '`']).next());
            assert!(known.iter().any(|name| Some(name.as_str()) == named), "{hint}");
        }
        assert_eq!(hint("nonsense"), None);
    }
}

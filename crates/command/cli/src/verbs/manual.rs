//! `everycall man` and `everycall completions`, generated from the same texts as `--help`.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use everycall_io::say;

use crate::arguments::{Arguments, CompletionsArguments, EXAMPLES, ManArguments, SUMMARY};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::print;

/// Runs `man`.
pub fn man(arguments: &ManArguments) -> Result<ExitCode, Failure> {
    let pages = pages();
    let Some(folder) = &arguments.install else {
        let wanted = match &arguments.verb {
            Some(verb) => format!("everycall-{verb}"),
            None => "everycall".to_owned(),
        };
        let page = pages.into_iter().find(|page| page.name == wanted).ok_or_else(|| {
            let sentence = format!("there is no manual page {wanted}; `everycall --help` lists the verbs");
            Failure::new(exit_code::USAGE, sentence)
        })?;
        print(&page.text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let section = folder.join("man1");
    std::fs::create_dir_all(&section).map_err(|error| cannot_write(&section, &error))?;
    for page in &pages {
        let path = section.join(format!("{}.1", page.name));
        std::fs::write(&path, &page.text).map_err(|error| cannot_write(&path, &error))?;
    }
    say!("everycall: {} pages are in {}; read them with `man everycall`", pages.len(), section.display());
    Ok(ExitCode::SUCCESS)
}

/// Runs `completions`.
pub fn completions(arguments: &CompletionsArguments) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "everycall", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::of(path, format!("can't be written: {error}; name a folder that you may write to"))
}

/// A page, in the language of `man`.
struct Page {
    name: String,
    text: String,
}

/// The command's page, then one for each verb.
fn pages() -> Vec<Page> {
    let command = Arguments::command().disable_help_subcommand(true);
    // NAME is a single line, which page indexes show; the examples are placed below DESCRIPTION.
    let mut command = command.about(SUMMARY).long_about(EXAMPLES);
    command.build();
    // `build` has named each verb's page: `everycall-record`.
    let verbs: Vec<Command> = command.get_subcommands().cloned().collect();
    let named = |verb: &Command| format!("everycall-{}", verb.get_name());
    let verbs = verbs.into_iter().map(|verb| page(&named(&verb), verb));
    std::iter::once(page("everycall", command)).chain(verbs).collect()
}

fn page(name: &str, command: Command) -> Page {
    let mut text = Vec::new();
    let version = format!("everycall {}", env!("CARGO_PKG_VERSION"));
    let page = clap_mangen::Man::new(command).title(name).section("1").source(version).manual("everycall");
    // Writing to memory doesn't fail.
    let _ = page.render(&mut text);
    Page { name: name.to_owned(), text: String::from_utf8_lossy(&text).into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of a page without roff markup.
    fn plain(text: &str) -> String {
        text.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "").replace("\\fI", "")
    }

    #[test]
    fn every_verb_and_option_has_its_place_in_the_pages() {
        let pages = pages();
        let command = Arguments::command();
        let main = plain(&pages[0].text);
        let verbs: Vec<&Command> = command.get_subcommands().collect();
        assert_eq!(pages.len(), verbs.len() + 1);
        for verb in verbs {
            let name = format!("everycall-{}", verb.get_name());
            assert!(main.contains(&name), "{name} is not in everycall(1)");
            let page = pages.iter().find(|page| page.name == name).unwrap();
            let text = plain(&page.text);
            for option in verb.get_arguments().filter_map(|argument| argument.get_long()) {
                assert!(text.contains(&format!("--{option}")), "--{option} is not in {name}(1)");
            }
        }
    }

    #[test]
    fn names_are_one_line() {
        for page in pages() {
            let name = page.text.split(".SH NAME\n").nth(1).unwrap().split(".SH ").next().unwrap();
            assert_eq!(name.trim_end().lines().count(), 1, "{}: {name}", page.name);
        }
    }

    #[test]
    fn every_verb_and_option_is_completed() {
        use clap_complete::Shell;

        let command = Arguments::command();
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "everycall", &mut script);
            let script = String::from_utf8(script).unwrap();
            for verb in command.get_subcommands() {
                assert!(script.contains(verb.get_name()), "{shell}: {}", verb.get_name());
                for option in verb.get_arguments().filter_map(|argument| argument.get_long()) {
                    let there =
                        script.contains(&format!("--{option}")) || script.contains(&format!("-l {option}"));
                    assert!(there, "{shell}: --{option} of {}", verb.get_name());
                }
            }
        }
    }
}

//! The arguments of cargo that matter here. All of them are passed on.

use std::ffi::{OsStr, OsString};

use super::options::{self, Named};

/// Cargo's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Build only.
    Build,
    /// Build a program and run it.
    Run,
    /// Build tests and run them.
    Test,
    /// Build benchmarks and run them.
    Bench,
}

impl Verb {
    /// As cargo calls it.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Build => "build",
            Verb::Run => "run",
            Verb::Test => "test",
            Verb::Bench => "bench",
        }
    }
}

/// A verb and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The verb.
    pub verb: Verb,
    /// The arguments behind it, without our options.
    pub args: Vec<OsString>,
    /// The trace file, if it is named behind the verb.
    pub output: Option<OsString>,
    /// `--target`.
    pub target: Option<String>,
    /// `--manifest-path`.
    pub manifest: Option<OsString>,
    /// Whether the user chose where cargo builds.
    pub has_target_folder: bool,
    /// Name of the folder of what is built.
    pub profile: String,
}

/// Options of cargo whose value is the next word.
const TAKE_NEXT: [&str; 24] = [
    "-p",
    "--package",
    "--exclude",
    "--bin",
    "--example",
    "--test",
    "--bench",
    "-F",
    "--features",
    "-j",
    "--jobs",
    "--profile",
    "--target",
    "--target-dir",
    "--manifest-path",
    "--message-format",
    "--color",
    "--config",
    "-Z",
    "-C",
    "--lockfile-path",
    "--artifact-dir",
    "--build-dir",
    "-o",
];

impl Request {
    /// Reads a verb and its arguments.
    ///
    /// # Errors
    /// It is none of these verbs: a sentence.
    pub fn read(words: &[OsString]) -> Result<Request, String> {
        let (verb, rest) = words.split_first().ok_or_else(|| WHAT_TO_NAME.to_owned())?;
        let verb = match &*verb.to_string_lossy() {
            "build" | "b" => Verb::Build,
            "run" | "r" => Verb::Run,
            "test" | "t" => Verb::Test,
            "bench" => Verb::Bench,
            other => return Err(format!("`{other}` is not a verb of `cargo everycall`; {WHAT_TO_NAME}")),
        };
        let profile = if verb == Verb::Bench { "release" } else { "debug" }.to_owned();
        let mut request = Request {
            verb,
            args: Vec::new(),
            output: None,
            target: None,
            manifest: None,
            has_target_folder: false,
            profile,
        };
        let ours = options::ours();
        let mut at = 0;
        while let Some(word) = rest.get(at) {
            let text = word.to_string_lossy();
            // All further arguments are the program's.
            if text == "--" || verb == Verb::Run && !text.starts_with('-') {
                break;
            }
            let (name, joined) = match text.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(OsString::from(value))),
                _ => (&*text, None),
            };
            let is_ours_with_value = ours.iter().any(|option| option.name == name && option.takes_value);
            let takes_next = joined.is_none() && (TAKE_NEXT.contains(&name) || is_ours_with_value);
            let value = joined.or_else(|| rest.get(at + 1).filter(|_| takes_next).cloned());
            let end = rest.len().min(at + 1 + usize::from(takes_next));
            if let Some(option) = ours.iter().find(|option| option.name == name) {
                return Err(before_verb(verb, option, value.as_deref()));
            }
            if !request.take(name, value) {
                request.args.extend_from_slice(rest.get(at..end).unwrap_or_default());
            }
            at = end;
        }
        request.args.extend_from_slice(rest.get(at..).unwrap_or_default());
        Ok(request)
    }

    /// Whether an option is ours, and not passed on.
    fn take(&mut self, name: &str, value: Option<OsString>) -> bool {
        let text = || value.as_ref().map(|value| value.to_string_lossy().into_owned());
        match name {
            "-o" => {
                self.output = value;
                return true;
            }
            "--target" => self.target = text(),
            "--manifest-path" => self.manifest = value,
            "--target-dir" => self.has_target_folder = true,
            "-r" | "--release" => "release".clone_into(&mut self.profile),
            "--profile" => {
                self.profile = text()
                    .map(|name| match &name[..] {
                        "dev" | "test" => "debug".to_owned(),
                        "bench" => "release".to_owned(),
                        _ => name,
                    })
                    .unwrap_or_default();
            }
            _ => {}
        }
        false
    }

    /// The arguments to build what would be run.
    pub fn without_running(&self) -> Vec<OsString> {
        let own = self.args.iter().take_while(|word| *word != "--").cloned();
        ["--no-run".into()].into_iter().chain(own).collect()
    }
}

/// The message for an option that stands behind the verb, where cargo would get it.
fn before_verb(verb: Verb, option: &Named, value: Option<&OsStr>) -> String {
    let verb = verb.name();
    let value = value.map(|value| format!(" {}", value.display())).unwrap_or_default();
    let name = &option.name;
    format!(
        "`{name}` is an option of everycall, and cargo would get it here; write it before `{verb}`: cargo everycall \
         {name}{value} {verb}; options of the program stand behind `--`"
    )
}

const WHAT_TO_NAME: &str =
    "name one of run, test, bench and build, as in: cargo everycall run --release -- ARGUMENTS";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Request {
        Request::read(&line.split(' ').map(OsString::from).collect::<Vec<_>>()).unwrap()
    }

    fn args(request: &Request) -> String {
        request.args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_output_is_ours_and_the_programs_arguments_are_not() {
        let request = read("run --release --bin a -o t.ect -- -o x");
        assert_eq!(
            (&args(&request)[..], request.output),
            ("--release --bin a -- -o x", Some("t.ect".into()))
        );
        let request = read("run -p a input -o x");
        assert_eq!((&args(&request)[..], request.output), ("-p a input -o x", None));
        let request = read("test name -o t.ect --target=x86_64-unknown-linux-musl -- --nocapture");
        assert_eq!(args(&request), "name --target=x86_64-unknown-linux-musl -- --nocapture");
        assert_eq!(request.target.as_deref(), Some("x86_64-unknown-linux-musl"));
        let built: Vec<_> =
            request.without_running().iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        assert_eq!(built.join(" "), "--no-run name --target=x86_64-unknown-linux-musl");
    }

    #[test]
    fn options_of_ours_behind_the_verb_are_named() {
        for (line, right) in [
            ("run --stream", "cargo everycall --stream run;"),
            ("run --release --ring-size 4M -- x", "cargo everycall --ring-size 4M run;"),
            ("test --start=off", "cargo everycall --start off test;"),
            ("bench --crate serde", "cargo everycall --crate serde bench;"),
        ] {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            let sentence = Request::read(&words).unwrap_err();
            assert!(sentence.contains(right), "{sentence}");
        }
        // Cargo has these itself; what follows is the program's.
        for right in ["run --quiet", "test --all", "run -- --stream", "run input --stream"] {
            assert_eq!(args(&read(right)), right.split_once(' ').unwrap().1, "{right}");
        }
    }

    #[test]
    fn folders_of_profiles() {
        for (line, profile) in [
            ("build", "debug"),
            ("b -r", "release"),
            ("bench", "release"),
            ("build --profile dev", "debug"),
            ("build --profile=fast", "fast"),
        ] {
            assert_eq!(read(line).profile, profile, "{line}");
        }
        assert!(Request::read(&["check".into()]).is_err() && Request::read(&[]).is_err());
    }
}

//! The tools of an agent. Each tool is a run of the command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use crate::answer::{Answer, refusal};
use crate::places::Allowed;
use crate::run::{Ran, run};
use crate::source;

/// Rows where nothing else is asked for.
const ROWS: u64 = 20;
/// Most rows.
const ROWS_MAX: u64 = 500;
/// Longest text of an argument.
const TEXT_MAX: usize = 64 << 10;
/// Files of the folder that are looked at.
const FILES_MAX: usize = 10_000;
/// Levels of folders in it.
const DEPTH_MAX: usize = 4;

/// Why a tool has no answer: a sentence, and what the command said.
struct Refused {
    sentence: String,
    said: Option<String>,
}

impl From<String> for Refused {
    fn from(sentence: String) -> Refused {
        Refused { sentence, said: None }
    }
}

impl From<&str> for Refused {
    fn from(sentence: &str) -> Refused {
        sentence.to_owned().into()
    }
}

type Answered = Result<Answer, Refused>;

/// A tool: name, what it is for, its arguments (name, type, whether it is needed, what it is).
struct Tool {
    name: &'static str,
    about: &'static str,
    arguments: &'static [(&'static str, &'static str, bool, &'static str)],
    call: fn(&Allowed, &Arguments<'_>) -> Answered,
    /// Whether it starts or records something.
    acts: bool,
}

const TRACE: (&str, &str, bool, &str) = ("trace", "string", true, "A trace, by its name in list_traces");
const LIMIT: (&str, &str, bool, &str) = ("limit", "integer", false, "Most rows, up to 500 (default 20)");

const TOOLS: &[Tool] = &[
    Tool {
        name: "list_traces",
        about: "Lists the traces of the allowed folder, newest first.",
        arguments: &[LIMIT],
        call: list_traces,
        acts: false,
    },
    Tool {
        name: "kept_calls",
        about: "Lists the slow calls that triggers kept in a trace, and the triggers.",
        arguments: &[TRACE, LIMIT],
        call: kept_calls,
        acts: false,
    },
    Tool {
        name: "info",
        about: "What a trace contains, and what is missing in it.",
        arguments: &[TRACE],
        call: info,
        acts: false,
    },
    Tool {
        name: "why",
        about: "Explains why one call was slow: the slowest kept call, the slowest call of a function, or a chosen one, \
                beside the median of its function: where the time went, what it waited for and who held it, which \
                functions differ, argument values, what the trace lacks. Start here.",
        arguments: &[
            TRACE,
            (
                "function",
                "string",
                false,
                "Explain the slowest call of this function: a name with * and ?, or /REGEX/",
            ),
            ("kept", "integer", false, "Explain the kept call with this number"),
            ("start_ns", "integer", false, "Explain the call that began at this time"),
            ("tid", "integer", false, "Only calls of this thread"),
            ("tails", "boolean", false, "Count the time of tail calls, too"),
        ],
        call: why,
        acts: false,
    },
    Tool {
        name: "report",
        about: "Calls, times and percentiles: of all functions, or about one function: its callers, its callees, its \
                slowest calls, what its slow calls did that others didn't.",
        arguments: &[
            TRACE,
            ("view", "string", false, "functions (default), callers, callees, slowest, explain, tree"),
            ("function", "string", false, "The function, for callers, callees, slowest and explain"),
            (
                "by",
                "string",
                false,
                "Group by thread, process, module, file, path, label:NAME, or a recorded argument such as 'handle(id)'",
            ),
            ("sort", "string", false, "calls, total, own, avg, p50, p99, max, blocked"),
            ("tid", "integer", false, "Only this thread"),
            ("since_ns", "integer", false, "Only what was open after this moment"),
            ("until_ns", "integer", false, "Only what was open before this moment"),
            LIMIT,
        ],
        call: report,
        acts: false,
    },
    Tool {
        name: "compare",
        about: "Compares two traces function by function: what became slower or is called more often.",
        arguments: &[
            ("old", "string", true, "The trace to compare with"),
            ("new", "string", true, "The other trace"),
            LIMIT,
        ],
        call: compare,
        acts: false,
    },
    Tool {
        name: "query",
        about: "Runs one SQL query (SQLite, read only) over a trace: tables slices, functions, threads, states, labels, \
                kept_calls and more; schema lists the columns.",
        arguments: &[TRACE, ("sql", "string", true, "The query"), LIMIT],
        call: query,
        acts: false,
    },
    Tool {
        name: "schema",
        about: "The tables and columns of query.",
        arguments: &[],
        call: schema,
        acts: false,
    },
    Tool {
        name: "source",
        about: "The source lines of a function, if its file lies in a folder that the user allowed.",
        arguments: &[
            TRACE,
            ("function", "string", true, "The function's complete name, as other tools give it"),
            ("lines", "integer", false, "How many lines, up to 200 (default 30)"),
        ],
        call: lines,
        acts: false,
    },
    Tool {
        name: "record",
        about: "Runs a program that the user allowed, and writes its trace into the folder.",
        arguments: &[
            ("program", "string", true, "The program: its path or file name"),
            ("arguments", "array", false, "Its arguments"),
            ("output", "string", true, "Name of the new trace, such as run-1.ect"),
            ("trigger", "string", false, "Keep calls that take longer, such as 'handle_request > 20ms'"),
            ("values", "array", false, "Arguments to record, such as 'handle_request(id, len)'"),
            ("waits", "boolean", false, "Record what calls wait for, and who held it"),
            ("states", "boolean", false, "Record when threads ran and were blocked"),
            (
                "stream",
                "boolean",
                false,
                "Keep all calls; without, the newest of each thread, as many as fit into memory",
            ),
            ("seconds", "integer", false, "End it after this time (default and at most: the server's limit)"),
        ],
        call: record,
        acts: true,
    },
    Tool {
        name: "watch",
        about: "Keeps calls of a running traced program that meet a condition, and writes them into the folder. Without \
                a condition, takes a snapshot of its newest calls.",
        arguments: &[
            ("pid", "integer", true, "The process; `processes` lists them"),
            ("output", "string", true, "Name of the new trace, such as run-1.ect"),
            ("trigger", "string", false, "The condition, such as 'handle_request > 20ms'"),
            ("seconds", "integer", false, "How long to wait for such calls (default 10)"),
        ],
        call: watch,
        acts: true,
    },
    Tool {
        name: "processes",
        about: "Lists running traced programs.",
        arguments: &[],
        call: processes,
        acts: true,
    },
];

/// Whether the user allowed a tool.
fn is_allowed(tool: &Tool, allowed: &Allowed) -> bool {
    match tool.name {
        "record" => !allowed.options.programs.is_empty(),
        "watch" | "processes" => allowed.options.attach,
        _ => true,
    }
}

/// The tools that the user allowed, as `tools/list` has them.
pub(crate) fn list(allowed: &Allowed) -> Value {
    let tools = TOOLS.iter().filter(|tool| is_allowed(tool, allowed)).map(|tool| {
        let property = |(name, kind, _, about): &(&str, &str, bool, &str)| {
            let mut schema = json!({ "type": kind, "description": about });
            if *kind == "array" {
                schema["items"] = json!({ "type": "string" });
            }
            ((*name).to_owned(), schema)
        };
        let properties: Map<String, Value> = tool.arguments.iter().map(property).collect();
        let needed: Vec<&str> =
            tool.arguments.iter().filter(|argument| argument.2).map(|argument| argument.0).collect();
        json!({
            "name": tool.name,
            "description": tool.about,
            "inputSchema": {
                "type": "object",
                "properties": properties,
                "required": needed,
                "additionalProperties": false,
            },
            "annotations": { "readOnlyHint": !tool.acts, "destructiveHint": false, "openWorldHint": false },
        })
    });
    json!({ "tools": tools.collect::<Vec<_>>() })
}

/// Calls a tool; `None` if there is none with this name.
pub(crate) fn call(allowed: &Allowed, name: &str, arguments: &Map<String, Value>) -> Option<Value> {
    let tool = TOOLS.iter().find(|tool| tool.name == name)?;
    if !is_allowed(tool, allowed) {
        let option = if name == "record" { "--allow-record PROGRAM" } else { "--allow-attach" };
        let sentence = format!("{name} isn't allowed; the user allows it with `everycall mcp {option}`");
        return Some(refusal(&sentence, None));
    }
    let arguments = Arguments { given: arguments };
    let answered =
        arguments.check(tool).map_err(Refused::from).and_then(|()| (tool.call)(allowed, &arguments));
    Some(match answered {
        Ok(answer) => answer.result(allowed.options.answer_max),
        Err(refused) => refusal(&refused.sentence, refused.said.as_deref()),
    })
}

/// The arguments of a call.
struct Arguments<'a> {
    given: &'a Map<String, Value>,
}

impl Arguments<'_> {
    /// Fails if some are missing, of another type, or not known.
    fn check(&self, tool: &Tool) -> Result<(), String> {
        for (name, value) in self.given {
            let known = tool.arguments.iter().find(|argument| argument.0 == name);
            let Some((name, kind, ..)) = known else {
                let names: Vec<&str> = tool.arguments.iter().map(|argument| argument.0).collect();
                return Err(format!("{} has no such argument; it has {}", tool.name, names.join(", ")));
            };
            let is_right = match *kind {
                "string" => value.as_str().is_some_and(|text| text.len() <= TEXT_MAX && !text.contains('\0')),
                "integer" => value.is_u64(),
                "boolean" => value.is_boolean(),
                _ => value.as_array().is_some_and(|list| {
                    let is_text = |text: &str| text.len() <= TEXT_MAX && !text.contains('\0');
                    list.len() <= 100 && list.iter().all(|value| value.as_str().is_some_and(is_text))
                }),
            };
            if !is_right {
                return Err(format!("`{name}` is not of type {kind}, or too long"));
            }
        }
        match tool.arguments.iter().find(|argument| argument.2 && !self.given.contains_key(argument.0)) {
            Some((name, ..)) => Err(format!("`{name}` is missing")),
            None => Ok(()),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.given.get(name)?.as_str()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.given.get(name)?.as_u64()
    }

    fn is(&self, name: &str) -> bool {
        self.given.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    fn texts(&self, name: &str) -> Vec<&str> {
        let list = self.given.get(name).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    fn limit(&self) -> u64 {
        self.number("limit").unwrap_or(ROWS).clamp(1, ROWS_MAX)
    }

    fn trace(&self, allowed: &Allowed) -> Result<PathBuf, String> {
        allowed.trace(self.text("trace").unwrap_or_default())
    }
}

/// The words of a command.
#[derive(Default)]
struct Words(Vec<OsString>);

impl Words {
    fn of(words: &[&str]) -> Words {
        Words(words.iter().map(OsString::from).collect())
    }

    /// An option with its value in one word, which can't be taken for another option.
    fn option(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Words {
        let mut word = OsString::from(name);
        word.push("=");
        word.push(value);
        self.0.push(word);
        self
    }

    fn option_if<T: ToString>(self, name: &str, value: Option<T>) -> Words {
        match value {
            Some(value) => self.option(name, value.to_string()),
            None => self,
        }
    }

    fn flag_if(mut self, name: &str, is_set: bool) -> Words {
        if is_set {
            self.0.push(name.into());
        }
        self
    }

    /// The words behind the options.
    fn rest(mut self, words: impl IntoIterator<Item = OsString>) -> Words {
        self.0.push("--".into());
        self.0.extend(words);
        self
    }
}

fn ran(allowed: &Allowed, words: &Words, limit: Duration) -> Result<Ran, Refused> {
    Ok(run(&allowed.options.command, &words.0, &allowed.options.folder, limit)?)
}

/// Runs a command that reads; its standard output.
fn read(allowed: &Allowed, words: &Words) -> Result<(String, Option<String>), Refused> {
    let limit = allowed.options.timeout;
    let ran = ran(allowed, words, limit)?;
    if ran.is_late {
        let sentence = format!(
            "it took longer than {} s; ask for less: a function, a thread, a range of time",
            limit.as_secs()
        );
        return Err(sentence.into());
    }
    if ran.is_cut {
        return Err("the result is too large; ask for less: a function, a thread, a range of time".into());
    }
    if ran.code != Some(0) {
        let sentence = "everycall could not do it; its messages are in the data".to_owned();
        return Err(Refused { sentence, said: Some(ran.stderr) });
    }
    Ok((ran.stdout, Some(ran.stderr).filter(|said| !said.trim().is_empty())))
}

/// The JSON that a command prints, with its messages.
fn json_of(allowed: &Allowed, words: &Words) -> Result<Value, Refused> {
    let (text, said) = read(allowed, words)?;
    let mut value: Value =
        serde_json::from_str(&text).map_err(|error| format!("the command printed no JSON: {error}"))?;
    if let (Value::Object(object), Some(said)) = (&mut value, said) {
        let said: Vec<&str> = said.lines().take(50).collect();
        object.insert("messages".to_owned(), json!(said));
    }
    Ok(value)
}

fn nanoseconds(ns: Option<u64>) -> Option<String> {
    ns.map(|ns| format!("{ns}ns"))
}

fn list_traces(allowed: &Allowed, arguments: &Arguments<'_>) -> Answered {
    let mut found: Vec<(u64, Value)> = Vec::new();
    let mut folders = vec![(allowed.options.folder.clone(), 0)];
    let mut seen = 0;
    while let Some((folder, depth)) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            seen += 1;
            if seen > FILES_MAX {
                break;
            }
            // Symbolic links aren't followed.
            let (path, Ok(facts)) = (entry.path(), entry.metadata()) else { continue };
            if facts.is_dir() && depth < DEPTH_MAX {
                folders.push((path, depth + 1));
            } else if facts.is_file() && path.extension().is_some_and(|end| end == "ect") {
                let changed = facts.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                let changed = changed.map_or(0, |time| time.as_secs());
                let name = allowed.name(&path);
                found.push((
                    changed,
                    json!({ "trace": name, "bytes": facts.len(), "changed_unix_s": changed }),
                ));
            }
        }
    }
    found.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.to_string().cmp(&other.1.to_string())));
    let all = found.len();
    let limit = arguments.limit() as usize;
    let rows: Vec<Value> = found.into_iter().take(limit).map(|(_, row)| row).collect();
    let mut answer = Answer::of(json!({ "traces": rows, "all": all }));
    if seen > FILES_MAX {
        answer = answer.note("The folder has more files than are looked at.");
    }
    Ok(answer.note("Next: why explains the slowest call of one."))
}

fn info_json(allowed: &Allowed, arguments: &Arguments<'_>) -> Result<Value, Refused> {
    let trace = arguments.trace(allowed)?;
    json_of(allowed, &Words::of(&["info", "-f", "json"]).rest([trace.into()]))
}

fn kept_calls(allowed: &Allowed, arguments: &Arguments<'_>) -> Answered {
    let mut info = info_json(allowed, arguments)?;
    let mut kept = info["kept_calls"].take();
    let all = kept.as_array().map_or(0, Vec::len);
    if let Value::Array(list) = &mut kept {
        list.sort_by_key(|call| std::cmp::Reverse(call["took_ns"].as_u64()));
        list.truncate(arguments.limit() as usize);
    }
    let answer = Answer::of(json!({ "kept_calls": kept, "all": all, "triggers": info["triggers"] }));
    Ok(answer.note("The slowest come first. Next: why with `kept` explains one by its number."))
}

fn info(allowed: &Allowed, arguments: &Arguments<'_>) -> Answered {
    Ok(Answer::of(info_json(allowed, arguments)?))
}

fn why(allowed: &Allowed, arguments: &Arguments<'_>) -> Answered {
    let trace = arguments.trace(allowed)?;
    let words = Words::of(&["why", "-f", "json"])
        .option_if("--function", arguments.text("function"))
        .option_if("--kept", arguments.number("kept"))
        .option_if("--call", nanoseconds(arguments.number("start_ns")))
        .option_if("--tid", arguments.number("tid"))
        .flag_if("--tails", arguments.is("tails"))
        .rest([trace.into()]);
    Ok(Answer::of(json_of(allowed, &words)?).note(
        "`claims` has what can be said, with `doubts` where it could be wrong. The commands in `next` are for people; \
         report and query of this server show the same.",
    ))
}

fn report(allowed: &Allowed, arguments: &Arguments<'_>) -> Answered {
    let trace = arguments.trace(allowed)?;
    let view = arguments.text("view").unwrap_or("functions");
    let function = arguments.text("function");
    let mut words = Words::of(&["report", "-f", "json"]);
    words = match (view, function) {
        ("functions", None) => words,
        ("functions", Some(_)) => {
            return Err("`function` is for the views callers, callees, slowest and explain".into());
        }
        ("tree", None) => words.flag_if("--tree", true),
        ("callers" | "callees" | "slowest" | "explain", Some(function)) => {
            words.option(&format!("--{view}"), function)
        }
        ("callers" | "callees" | "slowest" | "explain", None) => return Err("`function` is missing".into()),
        _ => return Err("`view` is functions, callers, callees, slowest, explain or tree".into()),
    };
    let words = words
        .option_if("--by", arguments.text("by"))
        .option_if("--sort", arguments.text("sort"))
        .option_if("--tid", arguments.number("tid"))
        .option_if("--since", nanoseconds(arguments.number("since_ns")))
        .option_if("--until", nanoseconds(arguments.number("until_ns")))
        .option("--limit", arguments.limit().to_string())
        .rest([trace.into()]);
    let mut value = json_of(allowed, &words)?;
    // Histograms are long, and percentiles say as much.
    if let Some(rows) = value["rows"].as_array_mut() {
        for row in rows.iter_mut().filter_map(Value::as_object_mut) {
            row.remove("histogram");
            row.retain(|_, number| !number.is_null());
        }
    }
    Ok(Answer::of(value))
}

fn compare(allowed: &Allowed, arguments: &Arguments<'_>) -> Answered {
    let old = allowed.trace(arguments.text("old").unwrap_or_default())?;
    let new = allowed.trace(arguments.text("new").unwrap_or_default())?;
    let words = Words::of(&["report", "-f", "json"])
        .option("--diff", old)
        .option("--against", new)
        .option("--limit", arguments.limit().to_string());
    Ok(Answer::of(json_of(allowed, &words)?)
        .note("One run of each side doesn't tell a change from noise: counts are exact, times may differ by chance."))
}

fn query(allowed: &Allowed, arguments: &Arguments<'_>) -> Answered {
    let trace = arguments.trace(allowed)?;
    let limit = arguments.limit() as usize;
    // A space before it: no query is taken for a file or for standard input.
    let query = format!(" {}", arguments.text("sql").unwrap_or_default());
    let seconds = allowed.options.timeout.as_secs().max(1);
    let words = Words::of(&["sql", "-f", "json", "--temp-size=256M"])
        .option("--timeout", format!("{seconds}s"))
        .rest([trace.into(), query.into()]);
    let (text, said) = read(allowed, &words)?;
    let mut rows = text.lines();
    let shown: Vec<Value> =
        rows.by_ref().take(limit).filter_map(|line| serde_json::from_str(line).ok()).collect();
    let more = rows.count();
    let mut answer = Answer::of(json!({ "rows": shown, "messages": said }));
    if more > 0 {
        answer = answer.note(format!(
            "{more} more rows; a larger `limit`, or `limit` and `offset` in the query, show them."
        ));
    }
    Ok(answer)
}

fn schema(allowed: &Allowed, _: &Arguments<'_>) -> Answered {
    let (text, _) = read(allowed, &Words::of(&["sql", "--schema"]))?;
    Ok(Answer::of(json!({ "schema": text })))
}

fn lines(allowed: &Allowed, arguments: &Arguments<'_>) -> Answered {
    let trace = arguments.trace(allowed)?;
    let name = arguments.text("function").unwrap_or_default();
    let all = json_of(allowed, &Words::of(&["report", "-f", "json"]).rest([trace.into()]))?;
    let without = |name: &str| name.split('(').next().unwrap_or(name).to_owned();
    let rows = all["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let by = |is_it: &dyn Fn(&str) -> bool| rows.iter().find(|row| row["name"].as_str().is_some_and(is_it));
    let row = by(&|known| known == name).or_else(|| by(&|known| without(known) == name));
    let Some(row) = row else {
        return Err("no function of this name was called; report lists them".into());
    };
    let (Some(file), Some(line)) = (row["file"].as_str(), row["line"].as_u64()) else {
        return Err("the program has no debugging information for this function (compile it with -g)".into());
    };
    let path = allowed.source(Path::new(file));
    let count = arguments.number("lines").unwrap_or(30).clamp(1, 200);
    let text = match &path {
        Some(path) => source::lines(path, line, count)?,
        None => Value::Null,
    };
    let answer = Answer::of(json!({ "function": row["name"], "file": file, "line": line, "lines": text }));
    Ok(match path {
        Some(_) => answer.note("The file may have changed since the program was built."),
        None => answer.note(
            "The file isn't in a folder that may be shown; the user allows one with `everycall mcp --sources FOLDER`.",
        ),
    })
}

/// Texts that the command would take for a file with more of them.
fn refuse_files<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<(), String> {
    match texts.into_iter().any(|text| text.trim_start().starts_with('@')) {
        true => Err("files with options aren't read here; write what is in it".to_owned()),
        false => Ok(()),
    }
}

fn record(allowed: &Allowed, arguments: &Arguments<'_>) -> Answered {
    let program = allowed.program(arguments.text("program").unwrap_or_default())?;
    let output = allowed.new_trace(arguments.text("output").unwrap_or_default())?;
    let values = arguments.texts("values");
    refuse_files(values.iter().copied().chain(arguments.text("trigger")))?;
    let mut words = Words::of(&["record", "-q"])
        .option("--output", &output)
        .option_if("--trigger", arguments.text("trigger"))
        .flag_if("--waits", arguments.is("waits"))
        .flag_if("--states", arguments.is("states"))
        .flag_if("--stream", arguments.is("stream"));
    for value in values {
        words = words.option("--args", value);
    }
    let program = std::iter::once(OsString::from(program));
    let words = words.rest(program.chain(arguments.texts("arguments").into_iter().map(OsString::from)));
    let longest = allowed.options.timeout;
    let limit =
        arguments.number("seconds").map_or(longest, |seconds| Duration::from_secs(seconds).min(longest));
    written(allowed, &ran(allowed, &words, limit)?, &output)
}

fn watch(allowed: &Allowed, arguments: &Arguments<'_>) -> Answered {
    let output = allowed.new_trace(arguments.text("output").unwrap_or_default())?;
    refuse_files(arguments.text("trigger"))?;
    let pid = arguments.number("pid").unwrap_or_default().to_string();
    let longest = allowed.options.timeout.as_secs();
    let words = match arguments.text("trigger") {
        Some(trigger) => {
            let seconds = arguments.number("seconds").unwrap_or(10).clamp(1, longest.max(1));
            Words::of(&["trigger"])
                .option("--output", &output)
                .option("--for", format!("{seconds}s"))
                .rest([pid.into(), trigger.into()])
        }
        None => Words::of(&["snapshot"]).option("--output", &output).rest([pid.into()]),
    };
    written(allowed, &ran(allowed, &words, allowed.options.timeout + Duration::from_secs(5))?, &output)
}

/// The answer of a tool that writes a trace.
fn written(allowed: &Allowed, ran: &Ran, output: &Path) -> Answered {
    let Ok(facts) = output.metadata() else {
        let sentence = match ran.is_late {
            true => "no trace was written: it took longer than allowed",
            false => "no trace was written; the messages are in the data",
        };
        return Err(Refused { sentence: sentence.to_owned(), said: Some(ran.stderr.clone()) });
    };
    let cut = |text: &str| text.chars().take(4000).collect::<String>();
    let answer = Answer::of(json!({
        "trace": allowed.name(output),
        "bytes": facts.len(),
        "exit_code": ran.code,
        "output_of_the_program": cut(&ran.stdout),
        "messages": cut(&ran.stderr),
    }));
    let answer = if ran.is_late { answer.note("It was ended because its time was over.") } else { answer };
    Ok(answer.note("Next: why explains the slowest call."))
}

fn processes(allowed: &Allowed, _: &Arguments<'_>) -> Answered {
    let (text, said) = read(allowed, &Words::of(&["ps"]))?;
    Ok(Answer::of(json!({ "processes": text, "messages": said })))
}

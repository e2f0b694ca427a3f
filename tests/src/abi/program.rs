//! The generated program: functions with random signatures, their callers, and a `main` that calls
//! them in a random order, in threads of their own and behind abandoned frames.

use std::fmt::Write;

use super::random::Random;
use super::types::{Class, Needs, Part, TYPES, Type};

/// For which compiler a program is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// C with nested functions.
    GccC,
    /// C++.
    GccCxx,
    /// C with the calling conventions of clang.
    ClangC,
    /// C++ with the calling conventions of clang.
    ClangCxx,
}

impl Dialect {
    fn is_cxx(self) -> bool {
        matches!(self, Dialect::GccCxx | Dialect::ClangCxx)
    }

    /// The source file's name extension.
    #[must_use]
    pub fn extension(self) -> &'static str {
        if self.is_cxx() { "cpp" } else { "c" }
    }
}

/// How a function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Direct,
    /// Another function with the same signature jumps to it, its address in a register or not.
    Tail {
        indirect: bool,
    },
    /// The last arguments are variable.
    Variadic,
    /// It is nested in its caller, and reaches the caller's variables by the static chain.
    Nested,
    /// With a calling convention of its own.
    Convention(&'static str),
}

const FORMS_COMMON: &[Form] = &[
    Form::Direct,
    Form::Direct,
    Form::Direct,
    Form::Tail { indirect: false },
    Form::Tail { indirect: true },
    Form::Variadic,
    Form::Variadic,
    Form::Convention("ms_abi"),
];
const CONVENTIONS_CLANG: &[&str] =
    &["preserve_most", "preserve_all", "preserve_none", "regcall", "vectorcall"];
/// Argument types of functions of other calling conventions.
const CONVENTION_ARGUMENTS: &[&str] = &["int", "ulong", "pointer", "double", "s_ll", "s_dd", "s_lll"];
const CONVENTION_RESULTS: &[&str] = &["int", "ulong", "pointer"];

/// One generated function.
struct Function {
    index: usize,
    form: Form,
    result: Option<&'static Type>,
    arguments: Vec<&'static Type>,
}

impl Function {
    fn new(index: usize, dialect: Dialect, random: &mut Random) -> Function {
        let special = match dialect {
            Dialect::GccC if index % 5 == 4 => Some(Form::Nested),
            Dialect::ClangC | Dialect::ClangCxx if index % 3 == 2 => {
                Some(Form::Convention(CONVENTIONS_CLANG[index / 3 % CONVENTIONS_CLANG.len()]))
            }
            _ => None,
        };
        let form = special.unwrap_or_else(|| FORMS_COMMON[index % FORMS_COMMON.len()]);
        let known = |class: &dyn Fn(&Type) -> bool| -> Vec<&'static Type> {
            let allowed = |kind: &&Type| match kind.needs {
                Needs::C => !dialect.is_cxx(),
                Needs::Cxx => dialect.is_cxx(),
                _ => true,
            };
            TYPES.iter().filter(allowed).filter(|kind| class(kind)).collect()
        };
        let all = match form {
            Form::Variadic => known(&|kind| kind.class != Class::Promoted && kind.needs == Needs::Nothing),
            Form::Convention(_) => known(&|kind| CONVENTION_ARGUMENTS.contains(&kind.name)),
            _ => known(&|_| true),
        };
        let simple = known(&|kind| matches!(kind.class, Class::Integer | Class::Double));
        // Some take enough numbers of one kind to fill all registers for them.
        let full = [None, Some(Class::Double), None, Some(Class::Integer)][index / 2 % 4];
        let same = known(&|kind| Some(kind.class) == full);
        let count = if full.is_some() { 8 + random.below(4) } else { random.below(12) };
        let arguments = (0..count)
            .map(|_| match random.below(8) {
                0..7 if full.is_some() => *random.pick(&same),
                0..3 => *random.pick(&simple),
                _ => *random.pick(&all),
            })
            .collect();
        // Each type is some function's result.
        let results = match form {
            Form::Convention("preserve_all" | "preserve_most" | "preserve_none") => {
                known(&|kind| CONVENTION_RESULTS.contains(&kind.name))
            }
            Form::Convention(_) => known(&|kind| CONVENTION_ARGUMENTS.contains(&kind.name)),
            _ => known(&|_| true),
        };
        let result = (index % 16 != 15).then(|| match form {
            Form::Convention(_) => *random.pick(&results),
            _ => results[index * 7 % results.len()],
        });
        Function { index, form, result, arguments }
    }

    fn needs(&self) -> Needs {
        let all = || self.arguments.iter().chain(&self.result);
        for needs in [Needs::Avx512, Needs::Avx] {
            if all().any(|kind| kind.needs == needs) {
                return needs;
            }
        }
        Needs::Nothing
    }

    /// Attributes of the function and its caller that let both use the vectors.
    fn target(&self) -> &'static str {
        match self.needs() {
            Needs::Avx512 => "TARGET(\"avx512f\") ",
            Needs::Avx => "TARGET(\"avx\") ",
            _ => "",
        }
    }

    fn result_name(&self) -> &'static str {
        self.result.map_or("void", |kind| kind.name)
    }

    /// Arguments that are declared; the rest are variable.
    fn declared(&self) -> usize {
        match self.form {
            Form::Variadic => self.arguments.len() / 3,
            _ => self.arguments.len(),
        }
    }

    fn parameters(&self) -> String {
        let mut list: Vec<String> = self.arguments[..self.declared()]
            .iter()
            .enumerate()
            .map(|(number, kind)| format!("{} a{number}", kind.name))
            .collect();
        if self.form == Form::Variadic {
            list.extend(["int count".to_owned(), "...".to_owned()]);
        }
        if list.is_empty() { "void".to_owned() } else { list.join(", ") }
    }

    fn passed(&self) -> String {
        let mut list: Vec<String> = (0..self.arguments.len()).map(|number| format!("a{number}")).collect();
        if self.form == Form::Variadic {
            list.insert(self.declared(), self.arguments.len().to_string());
        }
        list.join(", ")
    }

    fn attributes(&self) -> String {
        let convention = match self.form {
            Form::Convention(name) => format!("__attribute__(({name})) "),
            _ => String::new(),
        };
        format!("NOINLINE {}{convention}", self.target())
    }

    /// The function itself, under `name`.
    fn define(&self, text: &mut String, name: &str, indent: &str) {
        let index = self.index;
        let line = |text: &mut String, what: &str| {
            writeln!(text, "{indent}    {what}").expect("strings take everything");
        };
        let Function { arguments, result, .. } = self;
        writeln!(
            text,
            "{indent}{}{} {name}({})\n{indent}{{",
            self.attributes(),
            self.result_name(),
            self.parameters()
        )
        .expect("strings take everything");
        line(text, &format!("note({index});"));
        if self.form == Form::Nested {
            line(text, "take(&local, 8);");
            line(text, "local++;");
        }
        for (number, kind) in arguments[..self.declared()].iter().enumerate() {
            each_part(text, indent, kind, &format!("a{number}"), "take");
        }
        if self.form == Form::Variadic {
            line(text, "va_list list;");
            line(text, "va_start(list, count);");
            for (number, kind) in arguments.iter().enumerate().skip(self.declared()) {
                line(text, &format!("{0} a{number} = va_arg(list, {0});", kind.name));
                each_part(text, indent, kind, &format!("a{number}"), "take");
            }
            line(text, "va_end(list);");
        }
        if let Some(kind) = result {
            line(text, &format!("{} result;", kind.name));
            each_part(text, indent, kind, "result", "give");
            line(text, "return result;");
        }
        writeln!(text, "{indent}}}").expect("strings take everything");
    }

    /// The function, the code between it and its caller, and the caller.
    fn write(&self, text: &mut String) {
        let index = self.index;
        let result = self.result_name();
        let called = format!("f_{index}");
        let mut entry = called.clone();
        if self.form != Form::Nested {
            self.define(text, &called, "");
        }
        if let Form::Tail { indirect } = self.form {
            entry = format!("tail_{index}");
            let (parameters, passed) = (self.parameters(), self.passed());
            let mut target = called;
            if indirect {
                target = format!("pointer_{index}");
                let types = self.arguments.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
                writeln!(text, "{result} (*volatile {target})({types}) = f_{index};").expect("string");
            }
            writeln!(
                text,
                "NOINLINE {}{result} {entry}({parameters})\n{{\n    note(~{index});\n    return {target}({passed});\n}}",
                self.target()
            )
            .expect("string");
        }
        // The caller of every other function isn't traced, so that the function may be its thread's
        // first.
        let quiet = if index.is_multiple_of(2) { "QUIET " } else { "" };
        writeln!(text, "NOINLINE {quiet}{}static void call_{index}(void)\n{{", self.target())
            .expect("string");
        if self.form == Form::Nested {
            text.push_str("    unsigned long local;\n    give(&local, 8);\n");
            self.define(text, &entry, "    ");
        }
        for (number, kind) in self.arguments.iter().enumerate() {
            writeln!(text, "    {} a{number};", kind.name).expect("string");
            each_part(text, "", kind, &format!("a{number}"), "give");
        }
        text.push_str("    arm();\n");
        let call = format!("{entry}({});", self.passed());
        if let Some(kind) = self.result {
            writeln!(text, "    {result} result = {call}\n    check();").expect("string");
            each_part(text, "", kind, "result", "take");
        } else {
            writeln!(text, "    {call}\n    check();").expect("string");
        }
        if self.form == Form::Nested {
            text.push_str("    take(&local, 8);\n");
        }
        text.push_str("}\n\n");
    }
}

/// Hands each part of a variable to `take` or `give`.
fn each_part(text: &mut String, indent: &str, kind: &Type, variable: &str, verb: &str) {
    for part in kind.parts {
        let (suffix, offset, size) = match *part {
            Part::Bits(offset, size) => ("", offset, size),
            Part::Extended(offset) if verb == "give" => ("_extended", offset, 10),
            Part::Truth(offset) if verb == "give" => ("_truth", offset, 1),
            Part::Extended(offset) => ("", offset, 10),
            Part::Truth(offset) => ("", offset, 1),
        };
        writeln!(text, "{indent}    {verb}{suffix}((char *)&{variable} + {offset}, {size});")
            .expect("strings take everything");
    }
}

/// A program of `count` functions. It takes the number of calls as its argument, and prints a line
/// per function: its calls and a checksum; then what it found of `errno`, MXCSR, the x87 unit and
/// the direction flag.
#[must_use]
pub fn generate(dialect: Dialect, count: usize, seed: u64) -> String {
    let mut random = Random::new(seed);
    let mut text = String::from(include_str!("prelude.c"));
    for kind in TYPES {
        let wanted = match kind.needs {
            Needs::C => !dialect.is_cxx(),
            Needs::Cxx => dialect.is_cxx(),
            _ => true,
        };
        if !wanted || kind.definition.is_empty() {
            continue;
        }
        // gcc decides where a type is declared how its values are passed in registers: declared
        // without its vectors, a type loses their upper halves in functions that use them.
        if matches!(kind.needs, Needs::Avx | Needs::Avx512) {
            text.push_str("#pragma GCC push_options\n#pragma GCC target(\"avx512f\")\n");
            writeln!(text, "{}\n#pragma GCC pop_options", kind.definition).expect("string");
        } else {
            writeln!(text, "{}", kind.definition).expect("string");
        }
    }
    text.push('\n');
    let functions: Vec<Function> =
        (0..count).map(|index| Function::new(index, dialect, &mut random)).collect();
    for function in &functions {
        function.write(&mut text);
    }
    writeln!(text, "#define COUNT {count}\nstatic void (*const calls[COUNT])(void) = {{").expect("string");
    for function in &functions {
        writeln!(text, "    call_{},", function.index).expect("string");
    }
    text.push_str("};\nstatic const unsigned char needs[COUNT] = {");
    for function in &functions {
        let needs = match function.needs() {
            Needs::Avx512 => 2,
            Needs::Avx => 1,
            _ => 0,
        };
        write!(text, "{needs},").expect("string");
    }
    text.push_str("};\n\n");
    text.push_str(include_str!("main.c"));
    text
}

//! Which modules of a crate import each other, read from its sources: circles, and layers that
//! import upwards.
//!
//! A module is a file. Any path to another module counts, in `use` or anywhere else, also within
//! macros; tests (after `#[cfg(test)]`), comments and documentation don't. A module that only
//! re-exports names of the modules inside it (`pub use`) doesn't import them: the module that uses
//! such a name imports the module that defines it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fmt, fs};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A module's path below the crate's root, whose path is empty.
type Name = Vec<String>;

/// One module imports another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    /// The module that imports, as `layer::module`.
    pub from: String,
    /// The module that is imported.
    pub to: String,
    /// The first line that does.
    pub line: usize,
}

impl fmt::Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} imports {} (line {})", self.from, self.to, self.line)
    }
}

/// Imports between the modules of a crate.
#[derive(Clone, Debug, Default)]
pub struct Imports {
    imports: Vec<Import>,
    modules: usize,
}

/// A path in a source: its parts, and the line.
struct Found {
    path: Vec<String>,
    line: usize,
    /// `use` with a visibility: the name is handed on.
    is_handed_on: bool,
}

/// A module's source.
#[derive(Default)]
struct Module {
    found: Vec<Found>,
    /// Modules that it declares.
    children: BTreeSet<String>,
    /// Names that it takes from elsewhere, with where they come from.
    taken: BTreeMap<String, Vec<String>>,
}

impl Imports {
    /// Reads the crate whose sources begin in `root`, its `lib.rs` or `main.rs`.
    ///
    /// # Errors
    /// A source that can't be read or isn't Rust.
    pub fn of(root: &Path) -> Result<Imports, String> {
        let folder = root.parent().unwrap_or(Path::new("."));
        let mut modules = BTreeMap::new();
        read(root, folder, Vec::new(), &mut modules)?;
        let mut imports: BTreeMap<(Name, Name), usize> = BTreeMap::new();
        for (name, module) in &modules {
            for found in &module.found {
                let Some(target) = resolve(&modules, name, &found.path, 0) else { continue };
                let is_own = found.is_handed_on && target.len() > name.len() && target.starts_with(name);
                if target != *name && !is_own {
                    let line = imports.entry((name.clone(), target)).or_insert(found.line);
                    *line = (*line).min(found.line);
                }
            }
        }
        let shown = |name: &Name| if name.is_empty() { "crate".to_owned() } else { name.join("::") };
        let imports = imports
            .into_iter()
            .map(|((from, to), line)| Import { from: shown(&from), to: shown(&to), line })
            .collect();
        Ok(Imports { imports, modules: modules.len() })
    }

    /// How many modules there are, the root included.
    #[must_use]
    pub fn modules(&self) -> usize {
        self.modules
    }

    /// All imports.
    #[must_use]
    pub fn all(&self) -> &[Import] {
        &self.imports
    }

    /// Imports that go from one of `layers`, the lowest one first, to a higher one; and those of
    /// modules that are in none of them.
    #[must_use]
    pub fn upward(&self, layers: &[&str]) -> Vec<Import> {
        let layer = |module: &str| {
            let first = module.split("::").next().unwrap_or(module);
            layers.iter().position(|layer| *layer == first)
        };
        let is_upward = |import: &&Import| match (layer(&import.from), layer(&import.to)) {
            (Some(from), Some(to)) => from < to,
            // The root declares the layers and is below none of them.
            (None, _) => import.from != "crate",
            (Some(_), None) => true,
        };
        self.imports.iter().filter(is_upward).cloned().collect()
    }

    /// Modules that import each other in a circle, directly or through others.
    #[must_use]
    pub fn circles(&self) -> Vec<BTreeSet<String>> {
        let mut reached: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for import in &self.imports {
            reached.entry(&import.from).or_default().insert(&import.to);
        }
        loop {
            let before: usize = reached.values().map(BTreeSet::len).sum();
            let now = reached.clone();
            for targets in reached.values_mut() {
                let further: Vec<&str> =
                    targets.iter().filter_map(|to| now.get(to)).flatten().copied().collect();
                targets.extend(further);
            }
            if reached.values().map(BTreeSet::len).sum::<usize>() == before {
                break;
            }
        }
        let does_reach = |from: &str, to: &str| reached.get(from).is_some_and(|targets| targets.contains(to));
        let circles: BTreeSet<BTreeSet<String>> = reached
            .keys()
            .filter(|module| does_reach(module, module))
            .map(|module| {
                let others =
                    reached.keys().filter(|other| does_reach(module, other) && does_reach(other, module));
                others.map(|other| (*other).to_owned()).collect()
            })
            .collect();
        circles.into_iter().collect()
    }
}

/// Reads a module and those that it declares.
fn read(file: &Path, folder: &Path, name: Name, modules: &mut BTreeMap<Name, Module>) -> Result<(), String> {
    let source = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let tokens: TokenStream = source.parse().map_err(|error| format!("{}: {error}", file.display()))?;
    let mut module = Module::default();
    scan(tokens, &mut module, &mut 0);
    for child in module.children.clone() {
        let beside = folder.join(format!("{child}.rs"));
        let inside = folder.join(&child);
        let mut places = vec![(beside, inside.clone()), (inside.join("mod.rs"), inside)];
        if child == "arch" {
            // Its file is that of the architecture.
            let of_machine = folder.join("x86_64");
            places.push((of_machine.join("mod.rs"), of_machine));
            places.push((folder.join("x86_64.rs"), folder.to_owned()));
        }
        if child == "x86_64" || child == "aarch64" {
            // Beside the file of `arch` that chooses between them.
            let beside = file.parent().unwrap_or(folder);
            places.push((beside.join(&child).join("mod.rs"), beside.join(&child)));
            places.push((beside.join(format!("{child}.rs")), beside.to_owned()));
        }
        // Others with a path of their own are left out.
        let Some((file, inside)) = places.into_iter().find(|(file, _)| file.is_file()) else {
            module.children.remove(&child);
            continue;
        };
        let mut path = name.clone();
        path.push(child);
        read(&file, &inside, path, modules)?;
    }
    modules.insert(name, module);
    Ok(())
}

fn is_punct(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':')
}

fn word(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    }
}

/// Collects the paths in a stream of tokens, and the modules that it declares. `inline`: how many
/// modules with braces are around.
fn scan(tokens: TokenStream, module: &mut Module, inline: &mut usize) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    // A visibility precedes the word.
    let mut is_visible = false;
    while let Some(token) = tokens.get(at) {
        if let Some(behind) = behind_test(&tokens, at) {
            at = behind;
            continue;
        }
        match token {
            TokenTree::Group(group) => {
                let is_of_visibility = is_visible && group.delimiter() == Delimiter::Parenthesis;
                if !is_of_visibility {
                    scan(group.stream(), module, inline);
                    is_visible = false;
                }
                at += 1;
            }
            TokenTree::Ident(ident) => {
                let line = ident.span().start().line;
                match ident.to_string().as_str() {
                    "pub" => {
                        is_visible = true;
                        at += 1;
                        continue;
                    }
                    "use" => {
                        let end = (at..tokens.len()).find(|at| is_punct(tokens.get(*at), ';'));
                        let tree = tokens.get(at + 1..end.unwrap_or(tokens.len())).unwrap_or(&[]);
                        for (path, alias) in leaves(tree, &[]) {
                            take(module, path, alias, line, is_visible, *inline);
                        }
                        at = end.unwrap_or(tokens.len());
                    }
                    "mod" => {
                        let name = word(tokens.get(at + 1));
                        match tokens.get(at + 2) {
                            Some(TokenTree::Group(group)) => {
                                *inline += 1;
                                scan(group.stream(), module, inline);
                                *inline -= 1;
                                at += 2;
                            }
                            _ => module.children.extend(name),
                        }
                        at += 1;
                    }
                    _ if is_colons(&tokens, at + 1) => {
                        let (path, behind) = path_at(&tokens, at);
                        // Within braces, `super` begins there.
                        let path = without_inline(path, *inline);
                        module.found.push(Found { path, line, is_handed_on: false });
                        at = behind;
                        is_visible = false;
                        continue;
                    }
                    _ => {}
                }
                is_visible = false;
                at += 1;
            }
            _ => {
                is_visible = false;
                at += 1;
            }
        }
    }
}

/// Where the item ends that `#[cfg(test)]` at this place belongs to.
fn behind_test(tokens: &[TokenTree], at: usize) -> Option<usize> {
    let Some(TokenTree::Group(attribute)) = tokens.get(at + 1) else { return None };
    if !is_punct(tokens.get(at), '#') || attribute.stream().to_string().replace(' ', "") != "cfg(test)" {
        return None;
    }
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        other => is_punct(Some(other), ';'),
    };
    Some(
        (at + 2..tokens.len()).find(|at| tokens.get(*at).is_some_and(ends)).map_or(tokens.len(), |at| at + 1),
    )
}

/// The path that begins at this place, and where it ends.
fn path_at(tokens: &[TokenTree], mut at: usize) -> (Vec<String>, usize) {
    let mut path: Vec<String> = word(tokens.get(at)).into_iter().collect();
    at += 1;
    while is_colons(tokens, at) {
        let Some(next) = word(tokens.get(at + 2)) else { break };
        path.push(next);
        at += 3;
    }
    (path, at)
}

/// The paths of a `use`, each with its new name, if it gets one.
fn leaves(tree: &[TokenTree], before: &[String]) -> Vec<(Vec<String>, Option<String>)> {
    let mut all = Vec::new();
    for part in tree.split(|token| is_punct(Some(token), ',')) {
        let mut path = before.to_vec();
        let mut at = if is_colons(part, 0) { 2 } else { 0 };
        let mut alias = None;
        while let Some(token) = part.get(at) {
            match token {
                TokenTree::Ident(ident) if ident == "as" => {
                    alias = word(part.get(at + 1));
                    break;
                }
                TokenTree::Ident(ident) if ident == "self" && !path.is_empty() => {}
                TokenTree::Ident(ident) => path.push(ident.to_string()),
                TokenTree::Punct(mark) if mark.as_char() == '*' => path.push("*".to_owned()),
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    all.extend(leaves(&inner, &path));
                    path.clear();
                }
                _ => {}
            }
            at += 1;
        }
        if path.len() > before.len() || !path.is_empty() && !part.is_empty() {
            all.push((path, alias));
        }
    }
    all
}

/// The path as it is outside of as many modules with braces; what stays inside them is empty.
fn without_inline(mut path: Vec<String>, inline: usize) -> Vec<String> {
    for _ in 0..inline {
        match path.first().map(String::as_str) {
            Some("super") => {
                path.remove(0);
                if path.first().is_none_or(|first| first != "super") {
                    path.insert(0, "self".to_owned());
                }
            }
            Some("self") => return Vec::new(),
            _ => break,
        }
    }
    path
}

/// Notes a path of a `use`.
fn take(
    module: &mut Module,
    path: Vec<String>,
    alias: Option<String>,
    line: usize,
    is_handed_on: bool,
    inline: usize,
) {
    let path = without_inline(path, inline);
    if let Some(last) = path.last().filter(|_| inline == 0) {
        module.taken.insert(alias.unwrap_or_else(|| last.clone()), path.clone());
    }
    module.found.push(Found { path, line, is_handed_on });
}

/// How often a name may be handed on.
const STEPS_MAX: usize = 16;

/// The module that a path leads to; `None` where that is another crate's, or none.
fn resolve(modules: &BTreeMap<Name, Module>, from: &Name, path: &[String], steps: usize) -> Option<Name> {
    let (first, mut rest) = path.split_first()?;
    let mut at = from.clone();
    match first.as_str() {
        "crate" => at.clear(),
        "self" => {}
        "super" => {
            at.pop()?;
            while let Some((next, further)) = rest.split_first().filter(|(next, _)| *next == "super") {
                debug_assert_eq!(next, "super");
                at.pop()?;
                rest = further;
            }
        }
        // A module inside this one, or a name that it has taken.
        _ if modules.get(from)?.children.contains(first) => rest = path,
        _ => {
            let taken = modules.get(from)?.taken.get(first).filter(|taken| taken.first() != Some(first))?;
            let whole: Vec<String> = taken.iter().chain(rest).cloned().collect();
            return if steps < STEPS_MAX { resolve(modules, from, &whole, steps + 1) } else { None };
        }
    }
    while let Some((next, further)) = rest.split_first() {
        let module = modules.get(&at)?;
        if module.children.contains(next) {
            at.push(next.clone());
            rest = further;
            continue;
        }
        if let Some(taken) = module.taken.get(next).filter(|_| at != *from && steps < STEPS_MAX) {
            let whole: Vec<String> = taken.iter().chain(further).cloned().collect();
            if let Some(target) = resolve(modules, &at, &whole, steps + 1) {
                return Some(target);
            }
        }
        break;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate of these files.
    fn crate_of(name: &str, files: &[(&str, &str)]) -> Imports {
        let folder = std::env::temp_dir().join(format!("everycall-imports-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let imports = Imports::of(&folder.join("lib.rs")).unwrap();
        fs::remove_dir_all(folder).unwrap();
        imports
    }

    fn pairs(imports: &[Import]) -> Vec<(&str, &str)> {
        imports.iter().map(|import| (&import.from[..], &import.to[..])).collect()
    }

    #[test]
    fn layers_that_import_downwards_pass() {
        let found = crate_of(
            "downwards",
            &[
                ("lib.rs", "mod low; mod high;"),
                ("low/mod.rs", "pub mod a; pub mod b;"),
                ("low/a.rs", "pub struct A;"),
                (
                    "low/b.rs",
                    "use super::a::A; // crate::high::c::C\n/// [`crate::high::c`]\npub struct B(A);",
                ),
                ("high/mod.rs", "mod c;"),
                ("high/c.rs", "use crate::low::{a::A, b}; #[cfg(test)] mod tests { use crate::high::d; }"),
            ],
        );
        assert_eq!(pairs(found.all()), [("high::c", "low::a"), ("high::c", "low::b"), ("low::b", "low::a")]);
        assert_eq!(found.upward(&["low", "high"]), []);
        assert!(found.circles().is_empty());
        assert_eq!(found.modules(), 6);
    }

    #[test]
    fn an_upward_import_is_found_however_it_is_written() {
        for line in [
            "use crate::high::c::C;",
            "use crate::{high::c, low::b};",
            "fn f() { crate::high::c::g(); }",
            "fn f() { assert!(super::super::high::c::IS); }",
            "use crate::high; fn f() { high::c::g(); }",
            "use crate::high::C;",
            "mod inner { use super::super::super::high::c; }",
        ] {
            let found = crate_of(
                "upward",
                &[
                    ("lib.rs", "mod low; mod high;"),
                    ("low/mod.rs", "mod a; mod b;"),
                    ("low/a.rs", line),
                    ("low/b.rs", ""),
                    ("high/mod.rs", "mod c; pub(crate) use c::C;"),
                    ("high/c.rs", ""),
                ],
            );
            let upward = found.upward(&["low", "high"]);
            assert!(pairs(&upward).contains(&("low::a", "high::c")), "{line}: {:?}", found.all());
        }
    }

    #[test]
    fn modules_in_no_layer_are_found() {
        let found = crate_of(
            "strangers",
            &[("lib.rs", "mod low; mod other;"), ("low/mod.rs", ""), ("other.rs", "use crate::low::X;")],
        );
        assert_eq!(pairs(&found.upward(&["low"])), [("other", "low")]);
    }

    #[test]
    fn circles_are_found() {
        let found = crate_of(
            "circles",
            &[
                ("lib.rs", "mod a; mod b; mod c; mod d; pub use a::A;"),
                ("a.rs", "use crate::b::B;"),
                ("b.rs", "use super::c;"),
                // By a name that the root hands on.
                ("c.rs", "use crate::A;"),
                ("d.rs", "use crate::a::A;"),
            ],
        );
        let circle: BTreeSet<String> = ["a", "b", "c"].map(str::to_owned).into();
        assert_eq!(found.circles(), [circle]);
    }

    #[test]
    fn a_module_that_takes_what_it_declares_inside_may_be_in_a_circle() {
        let files = |outer| [("lib.rs", "mod a;"), ("a.rs", outer), ("a/b.rs", "use super::Outer;")];
        let own = crate_of("inside", &files("mod b; pub struct Outer; fn f() { b::g(); }"));
        assert_eq!(own.circles().len(), 1);
        let handed_on = crate_of("handed", &files("mod b; pub struct Outer; pub use b::Inner;"));
        assert!(handed_on.circles().is_empty(), "{:?}", handed_on.all());
    }
}

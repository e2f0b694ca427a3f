//! Which sources an export contains, and who may read it; short names; hints for other tools'
//! verbs.

use std::os::unix::fs::PermissionsExt;

use crate::common::Workplace;

fn mode(here: &Workplace, name: &str) -> u32 {
    std::fs::metadata(here.path(name)).unwrap().permissions().mode() & 0o777
}

fn text(here: &Workplace, name: &str) -> String {
    String::from_utf8(here.read(name)).unwrap()
}

#[test]
fn outputs_with_sources_are_for_their_owner() {
    let here = Workplace::new();
    here.build_app();
    here.succeed("record -q -o app.ect -- ./app 0");
    here.succeed("export -o private.json app.ect");
    assert_eq!(mode(&here, "private.json"), 0o600);
    assert!(
        text(&here, "private.json").contains("pthread") || text(&here, "private.json").contains("thread")
    );
    here.succeed("export --shared -o shared.json app.ect");
    assert_eq!(mode(&here, "shared.json") & 0o044, 0o044);
    here.succeed("export -f chrome -o chrome.json app.ect");
    assert_eq!(mode(&here, "chrome.json") & 0o044, 0o044);
}

/// A program claims to be compiled from another user's private file.
#[test]
fn files_that_were_not_compiled_are_left_out() {
    let here = Workplace::new();
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::create_dir(here.path("in")).unwrap();
    for (name, ending, is_told) in [("secret", "", false), ("secret", ".c", true)] {
        let secret = elsewhere.path().join(format!("{name}{ending}"));
        std::fs::write(&secret, "THE SECRET\n").unwrap();
        let code = format!(
            "# 1 \"{}\"\nint leaf(int x) {{ return x + 1; }}\n# 1 \"main.c\"\nint leaf(int);\nint main(void) {{ return leaf(-1); }}\n",
            secret.display()
        );
        here.write("in/main.c", &code);
        let built = here.shell("cd in && \"$EVERYCALL\" cc -- gcc -O0 -g -gdwarf-4 main.c -o ../app && cd .. && \"$EVERYCALL\" record -q -o app.ect -- ./app");
        assert_eq!(built.code, Some(0), "{built:?}");
        let said = here.succeed("export -o app.json app.ect").stderr;
        assert!(!text(&here, "app.json").contains("THE SECRET"), "{}", secret.display());
        assert!(said.contains("1 source file") && said.contains("--source-folder"), "{said}");
        here.succeed("export --any-source -o any.json app.ect");
        assert!(text(&here, "any.json").contains("THE SECRET"));
        let folder = elsewhere.path().display();
        here.succeed(&format!("export --source-folder {folder} -o allowed.json app.ect"));
        assert!(text(&here, "allowed.json").contains("THE SECRET"), "{is_told}");
        // A link in the compilation folder leads out of it.
        std::os::unix::fs::symlink(&secret, here.path("in/link.c")).unwrap();
        here.write("in/main.c", code.replace(&secret.display().to_string(), "link.c"));
        let built = here.shell("cd in && \"$EVERYCALL\" cc -- gcc -O0 -g -gdwarf-4 main.c -o ../app && cd .. && \"$EVERYCALL\" record -q -o app.ect -- ./app");
        assert_eq!(built.code, Some(0), "{built:?}");
        here.succeed("export -o app.json app.ect");
        assert!(!text(&here, "app.json").contains("THE SECRET"));
        std::fs::remove_file(here.path("in/link.c")).unwrap();
    }
}

/// clang writes checksums: a file that was replaced since isn't shown.
#[test]
fn another_file_than_was_compiled_is_left_out() {
    let here = Workplace::new();
    here.write(
        "app.c",
        "int leaf(int x) { return x + 1; }\nint main(void) { return leaf(-1); } /* AS COMPILED */\n",
    );
    here.succeed("cc -- clang-19 -O0 -g -gdwarf-5 app.c -o app");
    here.succeed("record -q -o app.ect -- ./app");
    here.succeed("export -o app.json app.ect");
    assert!(text(&here, "app.json").contains("AS COMPILED"));
    here.write("app.c", "ANOTHER TEXT\n");
    let said = here.succeed("export -o app.json app.ect").stderr;
    assert!(!text(&here, "app.json").contains("ANOTHER TEXT"));
    assert!(said.contains("left out") && said.contains("--any-source"), "{said}");
}

#[test]
fn names_are_short_unless_whole_ones_are_asked_for() {
    let here = Workplace::new();
    here.write(
        "app.cpp",
        "#include <string>\n#include <vector>\n\
         __attribute__((noinline)) int take(const std::vector<std::string>& all) { return all.size(); }\n\
         int main() { std::vector<std::string> all; all.push_back(\"x\"); return take(all) - 1; }\n",
    );
    here.succeed("cc -- g++ -O1 -g app.cpp -o app");
    here.succeed("record -q -o app.ect -- ./app");
    let short = "take(std::vector<std::string> const&)";
    let full =
        "take(std::vector<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
    let shown = here.succeed("replay app.ect").stdout;
    assert!(shown.contains(short) && !shown.contains("__cxx11"), "{shown}");
    assert!(here.succeed("replay --full-names app.ect").stdout.contains(full));
    assert!(here.succeed("replay -f json app.ect").stdout.contains(full));
    assert!(here.succeed("info app.ect").stdout.contains("take(std::vector<std::string>"));
    here.succeed("export -f chrome -o short.json app.ect");
    let exported = text(&here, "short.json");
    assert!(
        exported.contains(short) && exported.contains("\"full_name\":\"take(std::vector<std::__cxx11"),
        "{exported}"
    );
    here.succeed("export -f chrome --full-names -o full.json app.ect");
    let exported = text(&here, "full.json");
    assert!(exported.contains(full) && !exported.contains("full_name"), "{exported}");
    for pattern in ["vector<std::string>", "__cxx11::basic_string"] {
        let shown = here.succeed(&format!("replay --function {pattern} app.ect")).stdout;
        assert!(shown.contains(short), "{pattern}: {shown}");
    }
}

#[test]
fn other_tools_verbs_get_hints() {
    let here = Workplace::new();
    for (verb, hint) in [
        ("diff", "everycall report --diff"),
        ("stat", "everycall info"),
        ("dump", "everycall replay"),
        ("graph", "everycall report --tree"),
        ("live", "everycall record"),
        ("script", "everycall replay"),
        ("top", "everycall report"),
        ("account", "everycall report"),
        ("convert", "everycall export"),
        ("stack", "everycall report --tree"),
    ] {
        here.fail(verb, 2, &[hint]);
    }
}

#[test]
fn names_in_messages_are_escaped() {
    let here = Workplace::new();
    let name = "a\u{1b}]0;title\u{7}.ect";
    let output = here.command().args(["info", name]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains('\u{1b}') && !said.contains('\u{7}') && said.contains("\\u{1b}"), "{said:?}");
}

#[test]
fn the_name_of_a_trace_is_escaped() {
    let here = Workplace::new();
    here.build_app();
    here.succeed("record -o app.ect -- ./app");
    let name = "a\u{1b}]0;title\u{7}.ect";
    std::fs::rename(here.path("app.ect"), here.path(name)).unwrap();
    for words in [&["info", name][..], &["info", "-f", "json", name], &["replay", name], &["export", name]] {
        let output = here.command().args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = [output.stdout, output.stderr].concat();
        assert!(!said.contains(&0x1b) && !said.contains(&7), "{:?}", String::from_utf8_lossy(&said));
    }
}

/// A mistyped folder is reported instead of being ignored.
#[test]
fn folders_of_options_must_exist() {
    let here = Workplace::new();
    here.write("file", "");
    for option in ["--source-folder", "--debug-dir"] {
        here.fail(&format!("export {option} missing app.ect"), 2, &["missing", "doesn't exist"]);
        here.fail(&format!("export {option} file app.ect"), 2, &["file", "not a folder"]);
    }
}

/// Text for people has the beginning of very long names, also where lines may have any length.
#[test]
fn names_of_a_thousand_characters_are_shortened_in_all_text() {
    let here = Workplace::new();
    here.write(
        "app.cpp",
        "template<class A, class B> struct pair_of {};\n\
         typedef pair_of<int, long> p1; typedef pair_of<p1, p1> p2; typedef pair_of<p2, p2> p3;\n\
         typedef pair_of<p3, p3> p4; typedef pair_of<p4, p4> p5; typedef pair_of<p5, p5> p6;\n\
         template<class T> __attribute__((noinline)) int deep(int n) { __asm__ volatile(\"\"); return n; }\n\
         template<class T> __attribute__((noinline)) int never(int n) { __asm__ volatile(\"\"); return n; }\n\
         int main(int count, char**) { if (count > 1) never<p6>(1); return deep<p6>(0) + deep<p6>(0); }\n",
    );
    here.succeed("cc -- g++ -O1 -g app.cpp -o app");
    here.succeed("record -q -o app.ect -- ./app");
    here.succeed("record -q -o kept.ect --trigger deep>1ns -- ./app");
    let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    for (line, name) in [
        ("replay app.ect", "deep<…>"),
        ("info app.ect", "deep<…>"),
        ("info kept.ect", "deep<…>"),
        ("report app.ect", "deep<…>"),
        ("report --by path app.ect", "main > int deep<…>"),
        ("report --tree app.ect", "deep<…>"),
        ("report --callees main app.ect", "deep<…>"),
        ("report --explain main kept.ect app.ect", "deep<…>"),
        ("report --never app.ect", "never<…>"),
        ("report --diff app.ect kept.ect", "deep<…>"),
        ("functions ./app", "deep<…>"),
        ("count -- ./app", "deep<…>"),
        ("follow deep* -- ./app", "deep<…>"),
    ] {
        let shown = here.succeed(line).stdout;
        assert!(shown.contains(name) && longest(&shown) < 400, "{line}: {shown}");
        let (verb, rest) = line.split_once(' ').unwrap();
        let shown = here.succeed(&format!("{verb} --full-names {rest}")).stdout;
        assert!(longest(&shown) > 900 && !shown.contains('…'), "{line}: {shown}");
    }
}

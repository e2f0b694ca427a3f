//! `cargo xtask dist`: everything that users install, in `target/dist`. RELEASE.md lists the files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::packages::{self, found};
use crate::step::{Step, target_folder, workspace};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Linked with musl, the command needs no library.
const TARGET: &str = "x86_64-unknown-linux-musl";
/// Names that the command is called by, beside its own.
const NAMES: [&str; 4] = ["everycall-gcc", "everycall-g++", "everycall-clang", "everycall-clang++"];
/// Shells, and where packages of Debian have completions for each.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/everycall"),
    ("zsh", "share/zsh/vendor-completions/_everycall"),
    ("fish", "share/fish/vendor_completions.d/everycall.fish"),
];
/// A Debian without what building everycall needs, for [`install_and_try`].
const CLEAN: [&str; 4] =
    ["--variant=minbase", "--include=gcc,libc6-dev,python3-venv,man-db", "bookworm", "."];

/// Builds them; with `--try` installs and tries them, too.
///
/// # Errors
/// The failure, as a sentence.
pub fn run(words: impl Iterator<Item = String>) -> Result<(), String> {
    let words: Vec<String> = words.collect();
    let is_tried = match &words[..] {
        [] => false,
        [word] if word == "--try" => true,
        _ => return Err("usage: cargo xtask dist [--try]".to_owned()),
    };
    packages::ensure(&packages::DIST)?;
    let folder = target_folder().join("dist");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let binaries = build()?;
    let tree = folder.join("tree/usr");
    fill(&tree, &binaries)?;
    archive(&folder)?;
    debian_package(&folder)?;
    wheel(&folder, &binaries.join("everycall"))?;
    Step::new(&folder, "sh").args(["-c", "sha256sum everycall* > SHA256SUMS && cat SHA256SUMS"]).run()?;
    if is_tried { install_and_try(&folder) } else { Ok(()) }
}

/// The static programs, in the folder that is returned.
fn build() -> Result<PathBuf, String> {
    let root = workspace();
    Step::new(&root, "rustup").args(["target", "add", TARGET]).run()?;
    Step::new(&root, "cargo")
        .args(["build", "--release", "--locked", "-p", "everycall", "--target", TARGET])
        .run()?;
    Ok(target_folder().join(TARGET).join("release"))
}

/// Puts what is installed below `usr`.
fn fill(usr: &Path, binaries: &Path) -> Result<(), String> {
    let root = workspace();
    let everycall = usr.join("bin/everycall");
    let documents = usr.join("share/doc/everycall");
    for name in ["everycall", "cargo-everycall"] {
        copy(&binaries.join(name), &usr.join("bin").join(name))?;
    }
    for name in NAMES {
        symlink("everycall", usr.join("bin").join(name)).map_err(|error| format!("{name}: {error}"))?;
    }
    for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        copy(&root.join(name), &documents.join(name))?;
    }
    fs::write(
        documents.join("copyright"),
        "MIT or Apache-2.0, at your choice: LICENSE-MIT, LICENSE-APACHE.\n",
    )
    .map_err(|error| format!("{}: {error}", documents.display()))?;
    let pages = usr.join("share/man");
    Step::new(&root, &everycall).args(["man", "--install"]).args([&pages]).run()?;
    for (shell, place) in COMPLETIONS {
        let place = usr.join(place);
        make_folder_of(&place)?;
        Step::new(&root, &everycall).args(["completions", shell]).run_into(&place)?;
    }
    Ok(())
}

fn archive(folder: &Path) -> Result<(), String> {
    let name = format!("everycall-{VERSION}-x86_64-linux");
    let rename = format!("--transform=s,^usr,{name},");
    Step::new(&folder.join("tree"), "tar")
        .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-czf"])
        .args([&format!("../{name}.tar.gz"), &rename, "usr"])
        .run()
}

fn debian_package(folder: &Path) -> Result<(), String> {
    let control = folder.join("tree/DEBIAN/control");
    make_folder_of(&control)?;
    let text = format!(
        "Package: everycall\nVersion: {VERSION}\nArchitecture: amd64\nSection: devel\nPriority: optional\n\
         Maintainer: the everycall project\nRecommends: gcc | clang\n\
         Description: records every function call of a program, and shows what happened\n \
         Traces C, C++, Rust and Python programs, keeps the calls that were slow,\n \
         and compares traces.\n"
    );
    fs::write(&control, text).map_err(|error| format!("{}: {error}", control.display()))?;
    Step::new(folder, "dpkg-deb").args(["--build", "--root-owner-group", "tree", "."]).run()
}

/// The Python package, for the interpreter in the search path.
fn wheel(folder: &Path, everycall: &Path) -> Result<(), String> {
    // pip builds in the folder itself.
    let copied = folder.join("checkout");
    let parts = ["python", "crates/building/kit/include"];
    for part in parts {
        let place = copied.join(part);
        make_folder_of(&place)?;
        Step::new(&workspace(), "cp").args(["-r", part]).args([&place]).run()?;
    }
    Step::new(folder, "python3")
        .env("EVERYCALL_BINARY", &everycall.to_string_lossy())
        .args(["-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps", "-w", "."])
        .args([&copied.join("python")])
        .run()?;
    fs::remove_dir_all(&copied).map_err(|error| format!("{}: {error}", copied.display()))
}

/// Installs the files in a clean root folder, and records a program of each kind there.
fn install_and_try(folder: &Path) -> Result<(), String> {
    packages::ensure(&packages::DIST_TRY)?;
    let root = folder.join("clean");
    fs::create_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    Step::new(&root, "debootstrap").args(CLEAN).run()?;
    Step::new(folder, "sh").args(["-c", "cp everycall* clean/root/"]).run()?;
    let lines = "set -e; cd /root; export HOME=/root; mount -t proc proc /proc; trap 'umount /proc' EXIT\n\
        dpkg -i everycall_*.deb\n\
        everycall --version; man everycall-record > page; grep -q stream page\n\
        test -s /usr/share/bash-completion/completions/everycall\n\
        echo 'int handle(int x) { return x + 1; } int main(void) { return handle(1) - 2; }' > app.c\n\
        everycall cc -- gcc -O0 -g app.c -o app\n\
        everycall record -o app.ect -- ./app; everycall replay app.ect | grep handle\n\
        gcc -O0 app.c -o plain\n\
        everycall record --untouched -o plain.ect -- ./plain; everycall replay plain.ect | grep handle\n\
        everycall-gcc -O0 app.c -o again && ./again\n\
        tar xzf everycall-*.tar.gz; everycall-*/bin/everycall info app.ect\n\
        dpkg -r everycall; ! test -e /usr/bin/everycall\n\
        python3 -m venv fresh; fresh/bin/pip install -q --no-index everycall-*.whl\n\
        echo 'def handle(): pass\nhandle()' > app.py\n\
        fresh/bin/python -m everycall -o py.ect app.py; fresh/bin/everycall replay py.ect | grep handle\n";
    let chroot = found("chroot").unwrap_or_else(|| PathBuf::from("/usr/sbin/chroot"));
    let status = Command::new(chroot)
        .arg(&root)
        .args(["/bin/bash", "-c", lines])
        .status()
        .map_err(|error| format!("chroot can't be started: {error}; run it as root"))?;
    if status.success() { Ok(()) } else { Err(format!("what was installed in {}: {status}", root.display())) }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    make_folder_of(to)?;
    fs::copy(from, to).map(drop).map_err(|error| format!("{}: {error}", from.display()))
}

fn make_folder_of(path: &Path) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wheels and packages of one release have one version.
    #[test]
    fn python_has_the_workspaces_version() {
        let text = fs::read_to_string(workspace().join("python/pyproject.toml")).unwrap();
        assert!(text.contains(&format!("\nversion = \"{VERSION}\"\n")), "{VERSION}: {text}");
    }

    /// Other crates aren't published on purpose: their interfaces are the project's own.
    #[test]
    fn two_crates_are_published() {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
            .current_dir(workspace())
            .output()
            .unwrap();
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let published = packages.iter().filter(|package| package["publish"].is_null());
        let mut names: Vec<&str> = published.map(|package| package["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["everycall-api", "everycall-demangle"]);
        for package in packages.iter().filter(|package| package["publish"].is_null()) {
            let manifest = Path::new(package["manifest_path"].as_str().unwrap());
            assert!(
                manifest.with_file_name("README.md").exists(),
                "{} has no front page",
                manifest.display()
            );
        }
    }
}

//! Writes the file of [`everycall_synth::basic`]: `cargo run -p everycall-synth --example basic -- FILE`.
//! With `--arena` before the name, the arena of its first thread; with `--core`, a core with that arena; with `--family`, the file of
//! [`everycall_synth::family`], with `--marks` that of [`everycall_synth::marks`]; with `--compact`, the first one's events in
//! compact form.

use std::process::ExitCode;

use everycall_synth::{Core, File, arena_image, basic, family, marks};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let (bytes, path) = match &arguments[..] {
        [path] => (File::of(&basic()), path),
        [option, path] if option == "--arena" => {
            let mut process = basic();
            process.threads.truncate(1);
            (arena_image(&process), path)
        }
        [option, path] if option == "--core" => {
            let mut process = basic();
            process.threads.truncate(1);
            let mut core = Core {
                pid: process.pid,
                name: "app".to_owned(),
                arguments: process.arguments.join(" "),
                signal: 11,
                is_kernels: true,
                threads: 2,
                ..Core::default()
            };
            core.add_in_pieces(0x7f00_0000_0000, &arena_image(&process));
            (core.file(), path)
        }
        [option, path] if option == "--compact" => (File::of_compact(&basic()), path),
        [option, path] if option == "--family" => (File::of_family(&family()), path),
        [option, path] if option == "--marks" => (File::of_family(&[marks()]), path),
        _ => {
            eprintln!("expected [--arena | --compact | --core | --family | --marks] FILE");
            return ExitCode::FAILURE;
        }
    };
    match std::fs::write(path, bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

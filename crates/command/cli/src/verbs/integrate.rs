//! `everycall integrate`: files by which build systems find the compiler's options.

use std::path::Path;
use std::process::ExitCode;

use everycall_io::say;

use crate::exit_code;
use crate::failure::Failure;
use crate::kit::kit;
use crate::this_program::this_program;

/// Runs the verb.
pub fn run(folder: &Path, start: everycall_compiler::Start) -> Result<ExitCode, Failure> {
    let program = this_program()?;
    everycall_compiler::write_integration(folder, &program, start, &kit).map_err(|error| {
        let folder = folder.display();
        Failure::new(
            exit_code::FAILED,
            format!(
                "can't write the build files into {folder}: {error}; name a folder that you may write to"
            ),
        )
    })?;
    // Build systems read these lines in other folders.
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let folder = folder.display();
    say!(
        "\
everycall: build files are in {folder}
  CMake       -DCMAKE_PREFIX_PATH={folder}, find_package(everycall REQUIRED),
              target_link_libraries(app PRIVATE everycall::everycall)
  pkg-config  PKG_CONFIG_PATH={folder}/lib/pkgconfig pkg-config --cflags --libs everycall-nops
              (clang: everycall-xray; for shared objects: everycall-nops-module, everycall-xray-module)"
    );
    Ok(ExitCode::SUCCESS)
}

//! Calls of the system that fail, come short, or find a file changed: in a process that preloads [`library`].
//!
//! `faults.c` has the language of the rules. A process is given rules by its environment ([`RULES`]), or gives them to itself
//! by [`inject`].

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The variable that says which library a process preloads.
pub const PRELOAD: &str = "LD_PRELOAD";

/// The variable with the rules of a process that preloads the library, one a line.
pub const RULES: &str = "WEIGHTMAP_FAULTS";

/// The variable with the file in which a process that preloads the library tells each path that it opens or looks up.
pub const OPENED: &str = "WEIGHTMAP_OPENED";

/// The library; `None`, with a line that says so, where there is no C compiler.
pub fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    LIBRARY.get_or_init(|| compiled("faults", include_str!("faults.c"), &["-shared", "-fPIC"])).as_deref()
}

/// A program or library of C, built beside this program and kept there; `None`, with a line that says so, where there is no
/// C compiler.
pub fn compiled(name: &str, source: &str, options: &[&str]) -> Option<PathBuf> {
    let mut hasher = DefaultHasher::new();
    source.hash(&mut hasher);
    let program = std::env::current_exe().expect("the path of this program");
    let place = program.with_file_name(format!("weightmap-{name}-{:x}", hasher.finish()));
    if place.exists() {
        return Some(place);
    }
    // Others may be building it too, so that it has its name only once it is whole.
    let own = place.with_extension(std::process::id().to_string());
    let text = own.with_extension("c");
    std::fs::write(&text, source).expect("a file can be written");
    let output =
        Command::new("cc").args(["-O1", "-o"]).arg(&own).args(options).arg(&text).arg("-ldl").output();
    std::fs::remove_file(&text).expect("the file can be removed");
    match output {
        Ok(output) if output.status.success() => {
            std::fs::rename(own, &place).expect("the file can be renamed");
            Some(place)
        }
        Ok(output) if cfg!(all(target_os = "linux", target_env = "gnu")) => {
            panic!("{}", String::from_utf8_lossy(&output.stderr))
        }
        _ => {
            println!("skipped: no C compiler for Linux with the GNU C library here");
            None
        }
    }
}

/// Gives a rule to this process, which has preloaded the library.
pub fn inject(rule: &str) {
    command(rule);
}

/// Takes all rules back.
pub fn clear() {
    command("clear");
}

/// From here on tells each path that is opened or looked up in a file; until [`clear`].
pub fn log_to(file: &Path) {
    command(&format!("log {}", file.display()));
}

fn command(text: &str) {
    let answer = File::open(format!("/injected/{text}")).map(drop).map_err(|error| error.kind());
    assert_eq!(answer, Err(ErrorKind::AlreadyExists), "the library of faults is not preloaded");
}

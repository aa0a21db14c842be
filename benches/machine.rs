//! The machine and the hour, which figures are nothing without.

use std::fs;
use std::process::Command;

/// The cores, the memory, the kernel, the file of the program and the date, in one line.
pub(crate) fn description() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let processor = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let memory = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    let system = said("uname", &["-sr"]);
    let date = said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]);
    format!("{cores} × {processor}, {memory}, {system}, {date}")
}

/// What follows the first line of a file that begins so.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
}

/// What a program prints; nothing where there is none.
fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

//! A mount of a checkpoint whose every read takes a set time: the program of `benches/latency-fs`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// A file system that is to be mounted.
#[derive(Debug, Clone)]
pub struct Delayed {
    /// The program that serves it.
    pub program: PathBuf,
    /// The directory that it serves.
    pub source: PathBuf,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// Its other options.
    pub options: Vec<String>,
}

/// A file system that is mounted, until this is dropped.
pub(crate) struct Mounted {
    server: Child,
    output: BufReader<ChildStdout>,
}

/// What a mounted file system has served.
#[derive(Debug, Clone, Copy, serde::Deserialize)]
pub(crate) struct Served {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
}

impl Delayed {
    /// Why it cannot be mounted here, if so.
    pub fn obstacle(&self) -> Option<String> {
        if !Path::new("/dev/fuse").exists() {
            return Some("there is no /dev/fuse".to_owned());
        }
        self.mount().and_then(Mounted::unmount).err().map(|error| format!("{error:#}"))
    }

    pub(crate) fn mount(&self) -> Result<Mounted> {
        std::fs::create_dir_all(&self.mount_point)?;
        let mut server = Command::new(&self.program)
            .arg(&self.source)
            .arg(&self.mount_point)
            .args(&self.options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let output = server.stdout.take().context("the output is a pipe")?;
        let mut mounted = Mounted { server, output: BufReader::new(output) };
        let mut line = String::new();
        mounted.output.read_line(&mut line)?;
        ensure!(line == "mounted\n", "cannot mount at {}", self.mount_point.display());
        Ok(mounted)
    }
}

impl Mounted {
    /// Unmounts, and tells what was served.
    pub(crate) fn unmount(mut self) -> Result<Served> {
        // The end of its input is the sign.
        drop(self.server.stdin.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        let status = self.server.wait()?;
        ensure!(status.success(), "the file system ended with {status}");
        serde_json::from_str(&text).context("the file system did not tell what it served")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.server.stdin.take());
        if let Err(error) = self.server.wait() {
            eprintln!("the file system does not end: {error}");
        }
    }
}

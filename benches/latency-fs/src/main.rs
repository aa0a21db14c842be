//! Serves the files of a directory, read-only, from a file system that delays every read by a set time.
//!
//! `latency-fs SOURCE MOUNT_POINT [--delay-ms 2] [--request-bytes 131072] [--background 12] [--bytes-per-second N]` mounts,
//! prints the line `mounted`, waits for the end of its standard input, unmounts, and prints what it served as JSON.
//!
//! Requests that are in flight together are delayed together, as by a network; `--bytes-per-second` is the width of that
//! network. `--request-bytes` is the most that the kernel asks for at once, and `--background` how many requests of
//! read-ahead it has in flight: the defaults are those of most file systems in user space.

mod delay;
mod directory;
mod options;

use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
use fuser::{Config, MountOption};

use crate::delay::Counts;
use crate::directory::Directory;
use crate::options::Options;

fn main() -> Result<()> {
    let options = Options::from_args(std::env::args_os().skip(1))?;
    let counts = Counts::default();
    let directory = Directory::open(&options, &counts)?;
    let mut config = Config::default();
    config.mount_options = vec![MountOption::RO, MountOption::FSName("latency-fs".to_owned())];
    let mounted = fuser::spawn_mount(directory, &options.mount_point, &config)
        .with_context(|| format!("cannot mount at {}", options.mount_point.display()))?;

    println!("mounted");
    io::stdout().flush()?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    mounted.umount_and_join()?;
    println!("{counts}");
    Ok(())
}

//! How much memory the process may still use, by the limits of its control groups.
//!
//! What the files of a group mean is told in the kernel's `admin-guide/cgroup-v2.rst` and
//! `admin-guide/cgroup-v1/memory.rst`.

use std::fs;
use std::path::{Component, Path};

use crate::mounts::mounts;

/// The bytes of memory that can still be taken before a control group of the process reaches its limit;
/// `None` where none of them has one.
///
/// For each group that holds the process, up to the root, that is its limit less what its processes hold and
/// the kernel cannot take back by dropping pages of files; the smallest counts. It is a picture of this
/// moment: others in the group can take it first. Of version 2, groups above what a container sees say
/// nothing.
pub(crate) fn allowed_bytes() -> Option<u64> {
    if cfg!(target_os = "linux") { allowed_below(Path::new("/")) } else { None }
}

/// The same, with the files of the system below `root`.
fn allowed_below(root: &Path) -> Option<u64> {
    let membership = read(&root.join("proc/self/cgroup"))?;
    let mountinfo = read(&root.join("proc/self/mountinfo"))?;
    // Where both versions are mounted, one of them has the files about memory, and the other says nothing.
    let allowed = [Version::One, Version::Two].into_iter().filter_map(|version| {
        let group = version.group(&membership)?;
        mounts(&mountinfo)
            .filter(|mount| version.is_mounted_by(mount.kind, mount.options))
            .filter_map(|mount| {
                let point = root.join(mount.point.strip_prefix("/").ok()?);
                let groups = below(group, &mount.root)?.ancestors();
                groups.filter_map(|group| version.allowed(&point.join(group))).min()
            })
            .min()
    });
    allowed.min()
}

/// The path of a group below the one that a mount shows as its root; `None` if the mount does not show it.
///
/// Both are as seen from the process's control group namespace, above whose root `..` leads: a container sees
/// `/` for its own group, or its full path both here and there.
fn below<'a>(group: &'a Path, mount_root: &Path) -> Option<&'a Path> {
    let group = group.strip_prefix(mount_root).ok()?;
    (!group.components().any(|part| part == Component::ParentDir)).then_some(group)
}

/// The two interfaces to control groups.
#[derive(Debug, Clone, Copy)]
enum Version {
    One,
    Two,
}

impl Version {
    /// The group of the process, by the text of `/proc/self/cgroup`: lines of a number, controllers and a
    /// path.
    fn group(self, membership: &str) -> Option<&Path> {
        membership.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let is_ours = match self {
                Self::One => has(controllers, "memory"),
                Self::Two => number == "0" && controllers.is_empty(),
            };
            is_ours.then_some(Path::new(path))
        })
    }

    fn is_mounted_by(self, kind: &str, options: &str) -> bool {
        match self {
            Self::One => kind == "cgroup" && has(options, "memory"),
            Self::Two => kind == "cgroup2",
        }
    }

    /// What one group allows, by the files in its folder.
    fn allowed(self, group: &Path) -> Option<u64> {
        let file = |name| read(&group.join(name)).unwrap_or_default();
        match self {
            Self::One => allowed_by_one(&file("memory.stat")),
            Self::Two => allowed_by_two([&file("memory.max"), &file("memory.high")], &file("memory.stat")),
        }
    }
}

/// What a group of version 1 allows, by its `memory.stat`.
///
/// The limit that stands there is the smallest of the group and all above it, seen or not. `total_rss` is
/// anonymous memory, huge pages included, of the group and all below it. Memory of the kernel is not told
/// apart from what it can give back.
fn allowed_by_one(stat: &str) -> Option<u64> {
    /// No limit is the largest number of whole pages, whatever a page is.
    const NO_LIMIT: u64 = 1 << 62;
    let limit = value(stat, "hierarchical_memory_limit").filter(|&limit| limit < NO_LIMIT)?;
    Some(limit.saturating_sub(sum(stat, &["total_rss", "total_shmem"])))
}

/// What a group of version 2 allows, by its `memory.max` and `memory.high` and its `memory.stat`.
///
/// `memory.max` is where processes are killed, `memory.high` where they are slowed down until they hold less:
/// who means to be quick respects both.
fn allowed_by_two(limits: [&str; 2], stat: &str) -> Option<u64> {
    /// Anonymous and shared memory, and that of the kernel which it does not give back under pressure. Some
    /// kernels count less.
    const TAKEN: [&str; 8] =
        ["anon", "shmem", "kernel_stack", "pagetables", "percpu", "sock", "vmalloc", "slab_unreclaimable"];
    // No limit is the word `max`.
    let limit = limits.into_iter().filter_map(|limit| limit.trim().parse::<u64>().ok()).min()?;
    Some(limit.saturating_sub(sum(stat, &TAKEN)))
}

fn sum(stat: &str, keys: &[&str]) -> u64 {
    keys.iter().filter_map(|key| value(stat, key)).fold(0, u64::saturating_add)
}

/// The value of a key in lines of a key and a number.
fn value(stat: &str, key: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

fn has(list: &str, item: &str) -> bool {
    list.split(',').any(|other| other == item)
}

/// A text of the system's; names in it can be of any bytes, and those that are not UTF-8 are not of interest.
fn read(path: &Path) -> Option<String> {
    fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests;

//! What kind of storage a file is on, and what that means for reading it.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::mounts::mounts;
use crate::process::PerProcess;
use crate::sys;

/// The kinds of storage that are read in different ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// A disk of this machine, or something that is not known to be anything else.
    Local,
    /// The file is pages of memory and nothing besides.
    Memory,
    /// Directories shown as one, as the roots of containers are. What lies beneath is not known; mostly a
    /// disk.
    Overlay,
    /// The pages of a file are a network or a user-space process away: the name of the kind.
    Remote(&'static str),
}

/// The file systems of which the pages come from elsewhere, by the numbers of the kernel's `magic.h` and,
/// from Lustre on, of the file systems' own headers.
const REMOTE: [(u32, &str); 20] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "SMB"),
    (0xfe53_4d42, "SMB"),
    (sys::FUSE, "FUSE"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x7461_636f, "OCFS2"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x0116_1970, "GFS2"),
    (0x2003_0528, "OrangeFS"),
    (0xaad7_aaea, "PanFS"),
    (0xbeef_dead, "StorNext"),
    (0x786f_4256, "a VirtualBox share"),
    (0xbacb_acbc, "a VMware share"),
];

/// What a request costs on a kind of storage.
struct Cost {
    /// How many requests at once, at most, make it quicker than fewer.
    most_workers: usize,
    /// Whether requests mostly wait, so that even one core has reason to make all of them at once.
    waits: bool,
    /// The bytes that a worker reads in the time which one more request takes: a gap of fewer is read
    /// through.
    gap_bytes: u64,
}

impl Cost {
    const MEMORY: Self = Self { most_workers: usize::MAX, waits: false, gap_bytes: 4 << 10 };
    const LOCAL: Self = Self { most_workers: 16, waits: false, gap_bytes: 32 << 10 };
    const REMOTE: Self = Self { most_workers: 16, waits: true, gap_bytes: 512 << 10 };
}

impl Storage {
    /// Of an open file.
    pub(crate) fn of(file: &File) -> Self {
        match sys::file_system_number(file) {
            Some(sys::FUSE) => Self::Remote(fuse(file)),
            number => number.map_or(Self::Local, Self::numbered),
        }
    }

    fn numbered(number: u32) -> Self {
        match number {
            sys::TMPFS | sys::RAMFS | sys::HUGETLBFS => Self::Memory,
            sys::OVERLAYFS => Self::Overlay,
            _ => REMOTE
                .iter()
                .find(|&&(remote, _)| remote == number)
                .map_or(Self::Local, |&(_, name)| Self::Remote(name)),
        }
    }

    /// As reports name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Local => "local file system",
            Self::Memory => "file system in memory",
            Self::Overlay => "overlay of file systems",
            Self::Remote(name) => name,
        }
    }

    /// How many workers read from it in the least time, on a machine of so many cores.
    pub(crate) fn workers(self, cores: usize) -> usize {
        let Cost { most_workers, waits, .. } = self.cost();
        if waits { most_workers } else { cores.clamp(1, most_workers) }
    }

    /// The bytes that could be read in the time that one more request takes. Two ranges with a gap of fewer
    /// between them are quicker read as one.
    pub(crate) const fn gap_bytes(self) -> u64 {
        self.cost().gap_bytes
    }

    /// Of what is wanted, the part that gaps which are read through may have in all: one byte in so many, so that nobody reads
    /// much more than what was asked for; 0 for any, where requests take so long that they count more.
    pub(crate) const fn gap_share(self) -> u64 {
        match self {
            Self::Remote(_) => 0,
            Self::Memory | Self::Local | Self::Overlay => 25,
        }
    }

    const fn cost(self) -> Cost {
        match self {
            Self::Memory => Cost::MEMORY,
            Self::Local | Self::Overlay => Cost::LOCAL,
            Self::Remote(_) => Cost::REMOTE,
        }
    }
}

/// Which of the file systems that answer as FUSE a file is on.
///
/// The list of mounts can be long, so it is read once for each device and the answer kept for good.
fn fuse(file: &File) -> &'static str {
    static NAMES: OnceLock<PerProcess<Mutex<BTreeMap<String, &'static str>>>> = OnceLock::new();
    let Some(device) = sys::device(file) else { return "FUSE" };
    let names = NAMES.get_or_init(|| PerProcess::new(Mutex::default())).get(|_| Mutex::default());
    let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
    names.entry(device).or_insert_with_key(|device| {
        let mountinfo = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let name = fuse_name(&String::from_utf8_lossy(&mountinfo), device);
        // As often as there are devices, at most.
        Box::leak(name.into_boxed_str())
    })
}

/// The name of what is mounted from a device; the kernel writes `fuse.sshfs` for what calls itself that.
fn fuse_name(mountinfo: &str, device: &str) -> String {
    let kind = mounts(mountinfo).find(|mount| mount.device == device).map_or("", |mount| mount.kind);
    let is_plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    match kind.split_once('.') {
        None if kind == "virtiofs" => kind.to_owned(),
        Some(("fuse" | "fuseblk", name)) if is_plain(name) => format!("FUSE ({name})"),
        _ => "FUSE".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart_by_their_numbers() {
        for (number, expected) in [
            (0xef53, Storage::Local),
            (0x5846_5342, Storage::Local),
            (0x9123_683e, Storage::Local),
            (0x0102_1994, Storage::Memory),
            (0x8584_58f6, Storage::Memory),
            (0x9584_58f6, Storage::Memory),
            (0x794c_7630, Storage::Overlay),
            (0x6969, Storage::Remote("NFS")),
            (0x6573_5546, Storage::Remote("FUSE")),
            (0x0bd0_0bd0, Storage::Remote("Lustre")),
        ] {
            assert_eq!(Storage::numbered(number), expected, "{number:#x}");
        }
    }

    #[test]
    fn no_number_has_two_names() {
        let numbers: std::collections::BTreeSet<_> = REMOTE.iter().map(|(number, _)| number).collect();
        assert_eq!(numbers.len(), REMOTE.len());
    }

    #[test]
    fn what_answers_as_fuse_is_named_by_its_mount() {
        let mountinfo = "\
            27 1 254:0 / / rw - ext4 /dev/vda rw\n\
            50 27 0:40 / /mnt/host rw - virtiofs models rw\n\
            51 27 0:41 / /mnt/a rw - fuse.sshfs host:/models rw,user_id=0\n\
            52 27 0:42 / /mnt/b rw - fuse /dev/fuse rw,user_id=0\n\
            53 27 8:17 / /mnt/c rw - fuseblk /dev/sdb1 rw,user_id=0\n\
            54 27 0:44 / /mnt/d rw - fuse.\u{1b}[31m x rw\n";
        for (device, name) in [
            ("0:40", "virtiofs"),
            ("0:41", "FUSE (sshfs)"),
            ("0:42", "FUSE"),
            ("8:17", "FUSE"),
            ("0:44", "FUSE"),
            ("0:4", "FUSE"),
        ] {
            assert_eq!(fuse_name(mountinfo, device), name, "{device}");
        }
    }

    #[test]
    fn memory_and_disks_are_read_by_the_cores_and_what_is_remote_by_more() {
        for (storage, of_two, of_64) in [
            (Storage::Local, 2, 16),
            (Storage::Overlay, 2, 16),
            (Storage::Memory, 2, 64),
            (Storage::Remote("NFS"), 16, 16),
        ] {
            assert_eq!((storage.workers(2), storage.workers(64)), (of_two, of_64), "{storage:?}");
            assert!(storage.workers(0) > 0);
        }
    }

    #[test]
    fn the_further_the_storage_the_longer_a_gap_is_read_through() {
        let gaps = [Storage::Memory, Storage::Local, Storage::Remote("NFS")].map(Storage::gap_bytes);
        assert!(gaps.is_sorted_by(|nearer, further| nearer < further), "{gaps:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_of_this_system_are_told_apart() {
        assert_eq!(Storage::of(&File::open("/proc/self/io").unwrap()), Storage::Local);
        match File::open("/dev/shm") {
            Ok(folder) => assert_eq!(Storage::of(&folder), Storage::Memory),
            Err(error) => eprintln!("skipped: no /dev/shm here: {error}"),
        }
    }
}

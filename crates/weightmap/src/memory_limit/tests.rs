use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use super::*;

const MIB: u64 = 1 << 20;

/// Files of a system, below a folder of their own.
struct System(tempfile::TempDir);

impl System {
    fn new(membership: &str, mountinfo: &str) -> Self {
        let system = Self(tempfile::tempdir().unwrap());
        system.file("proc/self/cgroup", membership).file("proc/self/mountinfo", mountinfo)
    }

    fn file(self, path: &str, text: &str) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// A group of version 1.
    fn one(self, folder: &str, limit: u64, rss: u64) -> Self {
        let stat =
            format!("cache 5\nrss 1\nhierarchical_memory_limit {limit}\ntotal_cache 9\ntotal_rss {rss}\n");
        self.file(&format!("{folder}/memory.stat"), &stat)
    }

    /// A group of version 2.
    fn two(self, folder: &str, limit: &str, anon: u64) -> Self {
        self.file(&format!("{folder}/memory.max"), limit)
            .file(&format!("{folder}/memory.high"), "max\n")
            .file(&format!("{folder}/memory.stat"), &format!("anon {anon}\nfile 7\nshmem 0\n"))
    }

    fn allowed(&self) -> Option<u64> {
        allowed_below(self.0.path())
    }
}

const UNIFIED: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

#[test]
fn the_strictest_of_the_groups_up_to_the_root_counts() {
    let system = |middle: &str, inner: &str| {
        System::new("0::/a.slice/b.service\n", UNIFIED)
            .file("sys/fs/cgroup/memory.stat", "anon 1\n")
            .two("sys/fs/cgroup/a.slice", middle, 600)
            .two("sys/fs/cgroup/a.slice/b.service", inner, 100)
            .allowed()
    };
    assert_eq!(system("1000\n", "450\n"), Some(350));
    assert_eq!(system("1000\n", "900\n"), Some(400), "a neighbour holds 500 of what both share");
    assert_eq!(system("max\n", "900\n"), Some(800));
    assert_eq!(system("500\n", "max\n"), Some(0), "the limit was lowered below what is in use");
    assert_eq!(system("max\n", "max\n"), None);
}

#[test]
fn a_container_that_sees_its_own_group_as_the_root_finds_its_limit() {
    let system = System::new("0::/\n", UNIFIED).two("sys/fs/cgroup", "1000\n", 1);
    assert_eq!(system.allowed(), Some(999));
}

#[test]
fn a_container_that_sees_its_full_path_finds_its_group_at_the_mount() {
    let mountinfo =
        "40 30 0:35 /docker/f00 /sys/fs/cgroup/memory ro,nosuid master:9 - cgroup cgroup rw,memory\n";
    let system = |group: &str| {
        System::new(&format!("9:cpu,cpuacct:/x\n4:memory:{group}\n0::/docker/f00\n"), mountinfo)
            .one("sys/fs/cgroup/memory", 1000, 10)
            .one("sys/fs/cgroup/memory/inner", 1000, 5)
            .allowed()
    };
    assert_eq!(system("/docker/f00"), Some(990));
    assert_eq!(system("/docker/f00/inner"), Some(990), "the groups above count too");
    assert_eq!(system("/docker/f00/gone"), Some(990), "also where the group itself is not to be found");
    assert_eq!(system("/docker/f000"), None, "what is mounted is the group of someone else");
}

#[test]
fn a_group_outside_the_namespace_is_found_only_below_what_is_mounted() {
    let mountinfo = |root| format!("30 23 0:26 {root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    let system = |root| {
        System::new("0::/../beside\n", &mountinfo(root))
            .two("sys/fs/cgroup", "1000\n", 1)
            .two("sys/fs/cgroup/beside", "500\n", 1)
            .two("sys/fs/beside", "100\n", 1)
            .allowed()
    };
    assert_eq!(system("/.."), Some(499));
    assert_eq!(system("/"), None);
}

#[test]
fn with_both_versions_mounted_the_one_with_the_memory_controller_counts() {
    let mountinfo = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    let system = System::new("4:memory:/job\n1:cpu:/job\n0::/job\n", mountinfo)
        .one("sys/fs/cgroup/memory/job", 1000, 100)
        .one("sys/fs/cgroup/cpu/job", 10, 0)
        .file("sys/fs/cgroup/unified/job/cgroup.procs", "1\n");
    assert_eq!(system.allowed(), Some(900));
}

#[test]
fn blanks_in_the_place_of_a_mount_and_colons_in_a_group_are_understood() {
    let mountinfo = r"30 23 0:26 / /sys/fs/c\040group rw - cgroup2 cgroup2 rw";
    let system = System::new("0::/a:b c\n", mountinfo).two("sys/fs/c group/a:b c", "1000", 1);
    assert_eq!(system.allowed(), Some(999));
}

#[test]
fn a_system_without_groups_or_without_the_controller_has_no_limit() {
    assert_eq!(System(tempfile::tempdir().unwrap()).allowed(), None);
    assert_eq!(System::new("", UNIFIED).allowed(), None);
    assert_eq!(System::new("0::/\n", "").allowed(), None);
    assert_eq!(System::new("0::/\n", UNIFIED).file("sys/fs/cgroup/cgroup.procs", "1\n").allowed(), None);
}

#[test]
fn the_largest_number_of_pages_is_no_limit_in_version_1() {
    for page in [4 << 10, 16 << 10, 64 << 10_u64] {
        let none = i64::MAX.unsigned_abs() / page * page;
        assert_eq!(allowed_by_one(&format!("hierarchical_memory_limit {none}\ntotal_rss 5\n")), None);
    }
    assert_eq!(allowed_by_one("total_rss 5\n"), None);
    assert_eq!(allowed_by_one(""), None);
}

#[test]
fn version_1_counts_anonymous_and_shared_memory_of_all_groups_below() {
    let stat = "cache 900\nrss 100\nrss_huge 64\nshmem 30\nhierarchical_memory_limit 1000\n\
        hierarchical_memsw_limit 2000\ntotal_cache 990\ntotal_rss 200\ntotal_rss_huge 64\ntotal_shmem 40\n";
    assert_eq!(allowed_by_one(stat), Some(760));
}

#[test]
fn version_2_counts_what_the_kernel_cannot_take_back() {
    let stat = "anon 1\nfile 9000\nkernel 9000\nkernel_stack 4\npagetables 8\nsec_pagetables 9000\npercpu 16\nsock 32\n\
        vmalloc 64\nshmem 2\nzswap 9000\nfile_mapped 9000\nslab_reclaimable 9000\nslab_unreclaimable 128\nslab 9128\n";
    assert_eq!(allowed_by_two(["1000\n", "max\n"], stat), Some(745));
    assert_eq!(allowed_by_two(["1000\n", "max\n"], "anon 1\n"), Some(999), "an old kernel");
    assert_eq!(allowed_by_two(["1000\n", "max\n"], ""), Some(1000), "use that is not told");
}

#[test]
fn the_limit_from_which_processes_are_slowed_down_counts_too() {
    assert_eq!(allowed_by_two(["1000\n", "300\n"], "anon 1\n"), Some(299));
    assert_eq!(allowed_by_two(["max\n", "300\n"], ""), Some(300));
    assert_eq!(allowed_by_two(["300\n", ""], ""), Some(300));
    assert_eq!(allowed_by_two(["max\n", "max\n"], ""), None);
    assert_eq!(allowed_by_two(["", ""], ""), None);
}

/// A real group, which is removed at the end.
struct Group(PathBuf);

impl Group {
    /// A group with a limit, where one can be had.
    fn new(bytes: u64) -> Option<Self> {
        let mountinfo = read(Path::new("/proc/self/mountinfo"))?;
        mounts(&mountinfo).find_map(|mount| {
            let limit = match mount.kind {
                "cgroup" if has(mount.options, "memory") => "memory.limit_in_bytes",
                "cgroup2" => "memory.max",
                _ => return None,
            };
            let group = Self(mount.point.join(format!("weightmap-test-{}", std::process::id())));
            fs::create_dir(&group.0).ok()?;
            let mut limit = fs::OpenOptions::new().write(true).open(group.0.join(limit)).ok()?;
            limit.write_all(bytes.to_string().as_bytes()).ok()?;
            Some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

const REAL_LIMIT: u64 = 512 * MIB;

#[test]
fn a_process_in_a_group_with_a_limit_is_told_what_it_leaves() {
    let Some(group) = Group::new(REAL_LIMIT) else {
        eprintln!("skipped: no control group can be made here");
        return;
    };
    // The shell enters the group and becomes a run of the test below, which looks at itself.
    let output = Command::new("sh")
        .args(["-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#])
        .arg(&group.0)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "memory_limit::tests::in_the_group", "--include-ignored"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

#[test]
#[ignore = "run by the test above, in a group of its own"]
fn in_the_group() {
    /// What the kernel may not have counted yet.
    const SLACK: u64 = 16 * MIB;
    let before = allowed_bytes().unwrap();
    assert!(before <= REAL_LIMIT && before > REAL_LIMIT - 4 * SLACK, "{before}");
    let taken = memmap2::MmapMut::map_anon(128 << 20).map(|mut map| {
        map.fill(1);
        map
    });
    let after = allowed_bytes().unwrap();
    assert!(before - after > 128 * MIB - SLACK && before - after < 128 * MIB + SLACK, "{before} {after}");
    drop(taken);
    let at_last = allowed_bytes().unwrap();
    assert!(at_last > before - SLACK, "{before} {at_last}");
}

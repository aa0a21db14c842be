//! The rank of a process, by what its launcher has set in its environment.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::process::Command;

use weightmap::Rank;

/// Tells a process that it is to say its rank.
const CHILD: &str = "WEIGHTMAP_TESTS_RANK";

/// Says the rank of the process that it runs in, for the tests below, which start such processes.
#[test]
#[ignore = "run by the others, in processes of their own"]
fn says_its_rank() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    match Rank::from_env() {
        Ok(rank) => println!("\nsaid {}\n{}", numbers(&rank), rank.explain()),
        Err(error) => println!("\nsaid {}: {error}", error.kind()),
    }
}

/// `rank/world local_rank/local_size node`, with `-` for what is not known.
fn numbers(rank: &Rank) -> String {
    let shown = |number: Option<usize>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let (world, node) = (shown(rank.world()), shown(rank.node()));
    format!("{}/{world} {}/{} {node}", rank.rank(), shown(rank.local_rank()), shown(rank.local_size()))
}

/// This program as a process that says its rank, started by `launcher`, with no other variables than a launcher and
/// the system need.
fn process(launcher: &[&str]) -> Command {
    let program = std::env::current_exe().unwrap().into_os_string();
    let words: Vec<OsString> = launcher.iter().map(OsString::from).chain([program]).collect();
    let mut command = Command::new(&words[0]);
    let kept = ["PATH", "HOME", "TMPDIR", "SystemRoot", "LD_LIBRARY_PATH"];
    command
        .args(&words[1..])
        .args(["ranks::says_its_rank", "--exact", "--include-ignored", "--nocapture", "--test-threads=1"])
        .env_clear()
        .envs(kept.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
        .env(CHILD, "1");
    command
}

/// What such processes say, in a line each, with all that they print.
fn said(command: &mut Command) -> io::Result<(BTreeSet<String>, String)> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}\n{stderr}", output.status);
    let lines = text.lines().filter_map(|line| line.split_once("said ").map(|(_, said)| said.to_owned()));
    Ok((lines.collect(), text))
}

/// What a process says that has these variables.
#[track_caller]
fn assert_says<V: AsRef<OsStr>>(variables: &[(&str, V)], start: &str) -> String {
    let variables = variables.iter().map(|(name, value)| (name, value));
    let (lines, text) = said(process(&[]).envs(variables)).unwrap();
    assert!(
        lines.len() == 1 && lines.iter().all(|line| line.starts_with(start)),
        "{start:?} is not in: {text}"
    );
    text
}

#[test]
fn a_process_that_nobody_launched_is_alone() {
    assert_says::<&str>(&[], "0/1 0/1 -");
}

#[test]
fn a_process_of_torchrun_under_srun_is_the_rank_that_torchrun_says() {
    let text = assert_says(
        &[
            ("SLURM_STEP_NODELIST", "n[0-1]"),
            ("SLURM_PROCID", "1"),
            ("SLURM_NTASKS", "2"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_STEP_TASKS_PER_NODE", "1(x2)"),
            ("TORCHELASTIC_RUN_ID", "17"),
            ("RANK", "6"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "2"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("GROUP_RANK", "1"),
        ],
        "6/8 2/4 1",
    );
    assert!(text.contains("torchrun decides: TORCHELASTIC_RUN_ID=\"17\", RANK=\"6\""), "{text}");
    assert!(text.contains("srun is passed over, since torchrun comes before it"), "{text}");
}

#[test]
fn a_batch_shell_of_slurm_is_alone() {
    assert_says(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8"), ("SLURM_NODEID", "0")], "0/1 0/1 -");
}

#[test]
fn a_process_whose_launcher_contradicts_itself_gets_an_error() {
    let start =
        "BadRank: PyTorchJob or a script: RANK=\"4\": expected a number below 4, since WORLD_SIZE=\"4\"";
    assert_says(&[("RANK", "4"), ("WORLD_SIZE", "4")], start);
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_no_text_is_no_number() {
    use std::os::unix::ffi::OsStrExt as _;
    let start = "BadRank: MPICH or Intel MPI: PMI_RANK=\"1\u{fffd}\": expected a number";
    assert_says(&[("PMI_RANK", OsStr::from_bytes(b"1\xff")), ("PMI_SIZE", OsStr::new("2"))], start);
}

#[test]
fn four_processes_under_mpirun_are_four_ranks() {
    let mut mpirun = process(&["mpirun", "-n", "4"]);
    // Of Open MPI: root may run it, as in a container, and four may share fewer cores. Others do not ask.
    mpirun
        .envs(["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"].map(|name| (name, "1")))
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    let lines = match said(&mut mpirun) {
        Ok((lines, _)) => lines,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return println!("skipped: no mpirun here"),
        Err(error) => panic!("{error}"),
    };
    let field = |number: usize| -> BTreeSet<&str> {
        lines.iter().map(|line| line.split(' ').nth(number).unwrap()).collect()
    };
    assert_eq!(field(0), BTreeSet::from(["0/4", "1/4", "2/4", "3/4"]));
    // Which of them is the first on the node is the launcher's affair.
    assert!(
        field(1) == BTreeSet::from(["0/4", "1/4", "2/4", "3/4"]) || field(1) == BTreeSet::from(["-/-"]),
        "{lines:?}"
    );
}

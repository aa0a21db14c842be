use proptest::prelude::*;

use super::*;

type Set<'a> = &'a [(&'a str, &'a str)];

fn read(set: Set<'_>) -> Result<Rank> {
    Rank::from_vars(|name| Some(set.iter().find(|(set, _)| *set == name)?.1.to_owned()))
}

/// Rank, world, local rank, local size and node.
type Numbers = (usize, Option<usize>, Option<usize>, Option<usize>, Option<usize>);

fn numbers(rank: &Rank) -> Numbers {
    (rank.rank(), rank.world(), rank.local_rank(), rank.local_size(), rank.node())
}

fn assert_reads(set: Set<'_>, expected: Numbers, by: &str) {
    let rank = read(set).unwrap();
    assert_eq!(numbers(&rank), expected, "{set:?}");
    assert!(rank.explain().starts_with(by), "{}", rank.explain());
}

#[track_caller]
fn assert_refused(set: Set<'_>, message: &str) {
    let error = read(set).unwrap_err();
    assert_eq!((error.kind(), error.path()), ("BadRank", None));
    assert!(error.to_string().starts_with(message), "{error}");
}

const TORCHRUN: [(&str, &str); 7] = [
    ("TORCHELASTIC_RUN_ID", "none"),
    ("RANK", "5"),
    ("WORLD_SIZE", "8"),
    ("LOCAL_RANK", "1"),
    ("LOCAL_WORLD_SIZE", "4"),
    ("GROUP_RANK", "1"),
    ("GROUP_WORLD_SIZE", "2"),
];

const OPEN_MPI: [(&str, &str); 5] = [
    ("OMPI_COMM_WORLD_RANK", "2"),
    ("OMPI_COMM_WORLD_SIZE", "6"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    // Which of the node's processes this is, and not which node.
    ("OMPI_COMM_WORLD_NODE_RANK", "7"),
];

const SRUN: [(&str, &str); 7] = [
    ("SLURM_STEP_NODELIST", "n[1-3]"),
    ("SLURM_PROCID", "9"),
    ("SLURM_NTASKS", "11"),
    ("SLURM_STEP_NUM_TASKS", "11"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_STEP_TASKS_PER_NODE", "4(x2),3"),
    ("SLURM_NODEID", "2"),
];

/// The variables of one of these with others in their places.
fn with<'a>(set: Set<'a>, others: Set<'a>) -> Vec<(&'a str, &'a str)> {
    let kept = set.iter().filter(|(name, _)| others.iter().all(|(other, _)| other != name));
    kept.chain(others).copied().collect()
}

fn without<'a>(set: Set<'a>, name: &str) -> Vec<(&'a str, &'a str)> {
    set.iter().copied().filter(|(set, _)| *set != name).collect()
}

#[test]
fn a_process_without_a_launcher_is_rank_0_of_1() {
    assert_reads(&[("HOME", "/")], (0, Some(1), Some(0), Some(1), None), "no launcher is there");
}

#[test]
fn torchrun_says_the_node_too() {
    assert_reads(&TORCHRUN, (5, Some(8), Some(1), Some(4), Some(1)), "torchrun decides");
}

#[test]
fn deepspeed_says_the_local_size_and_ray_train_the_local_world_size() {
    let three = [("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1")];
    let by = "DeepSpeed, Ray Train or Accelerate decides";
    assert_reads(&three, (5, Some(8), Some(1), None, None), by);
    for size in ["LOCAL_SIZE", "LOCAL_WORLD_SIZE"] {
        assert_reads(&with(&three, &[(size, "4")]), (5, Some(8), Some(1), Some(4), None), by);
    }
}

#[test]
fn launchers_of_mpi_are_known_by_their_variables() {
    assert_reads(&OPEN_MPI, (2, Some(6), Some(0), Some(2), None), "Open MPI decides");
    for (by, [rank, world, local_rank, local_size]) in [
        ("MPICH or Intel MPI decides", ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"]),
        (
            "MVAPICH decides",
            [
                "MV2_COMM_WORLD_RANK",
                "MV2_COMM_WORLD_SIZE",
                "MV2_COMM_WORLD_LOCAL_RANK",
                "MV2_COMM_WORLD_LOCAL_SIZE",
            ],
        ),
        (
            "LSF jsrun decides",
            [
                "JSM_NAMESPACE_RANK",
                "JSM_NAMESPACE_SIZE",
                "JSM_NAMESPACE_LOCAL_RANK",
                "JSM_NAMESPACE_LOCAL_SIZE",
            ],
        ),
    ] {
        let set = [(rank, "5"), (world, "6"), (local_rank, "1"), (local_size, "2")];
        assert_reads(&set, (5, Some(6), Some(1), Some(2), None), by);
        assert_reads(&set[..2], (5, Some(6), None, None, None), by);
    }
}

#[test]
fn cray_pals_does_not_say_the_world() {
    let set = [("PMIX_RANK", "3"), ("PALS_LOCAL_RANKID", "1")];
    assert_reads(&set, (3, None, Some(1), None, None), "Cray PALS decides");
    let set = [("PALS_RANKID", "3"), ("PALS_LOCAL_RANKID", "1"), ("PALS_LOCAL_SIZE", "2")];
    assert_reads(&set, (3, None, Some(1), Some(2), None), "Cray PALS decides");
}

#[test]
fn srun_says_the_local_size_in_a_list_over_the_nodes() {
    assert_reads(&SRUN, (9, Some(11), Some(1), Some(3), Some(2)), "srun decides");
    let of = |tasks, node| {
        let set = [("SLURM_STEP_TASKS_PER_NODE", tasks), ("SLURM_NODEID", node), ("SLURM_LOCALID", "0")];
        read(&with(&SRUN, &set)).map(|rank| rank.local_size())
    };
    for (node, expected) in [("0", 2), ("1", 2), ("2", 1), ("3", 3), ("4", 3), ("5", 3)] {
        assert_eq!(of("2(x2),1,3(x3)", node).unwrap(), Some(expected), "{node}");
    }
    assert_eq!(of("2(x18446744073709551615),1", "7").unwrap(), Some(2));
    assert_eq!(of("4(x2)", "").unwrap(), Some(4), "all nodes have 4");
    assert_eq!(of("4,3", "").unwrap(), None);
    assert_eq!(of("", "1").unwrap(), None);
    for tasks in ["4(2)", "4(x2", "4,,3", "x", "(x2)", "4(x-1)", "18446744073709551616"] {
        let error = of(tasks, "0").unwrap_err().to_string();
        assert!(error.contains("expected numbers of tasks by node, as `4(x2),3`"), "{error}");
    }
    let error = of("4(x2),3", "3").unwrap_err().to_string();
    assert!(error.contains(r#"an entry for node 3, since SLURM_NODEID="3""#), "{error}");
    assert_refused(
        &with(&SRUN, &[("SLURM_STEP_TASKS_PER_NODE", "4,4,0"), ("SLURM_LOCALID", "")]),
        r#"srun: SLURM_STEP_TASKS_PER_NODE="4,4,0": expected 1 or more"#,
    );
}

#[test]
fn the_number_of_tasks_is_that_of_the_step_where_the_jobs_is_there_too() {
    let set = with(&SRUN, &[("SLURM_NTASKS", "64")]);
    assert_eq!(read(&set).unwrap().world(), Some(11));
    assert_eq!(read(&without(&SRUN, "SLURM_STEP_NUM_TASKS")).unwrap().world(), Some(11));
}

#[test]
fn a_batch_shell_is_no_rank() {
    let shell = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8"), ("SLURM_LOCALID", "0"), ("SLURM_NODEID", "0")];
    let rank = read(&shell).unwrap();
    assert_eq!(numbers(&rank), (0, Some(1), Some(0), Some(1), None));
    let line =
        r#"srun is passed over, since SLURM_STEP_NODELIST is not set: SLURM_PROCID="0", SLURM_NTASKS="8""#;
    assert!(rank.explain().contains(line), "{}", rank.explain());
}

#[test]
fn rank_and_world_alone_count_and_say_nothing_of_the_node() {
    let pod = [("RANK", "1"), ("WORLD_SIZE", "3"), ("MASTER_ADDR", "job-master-0")];
    assert_reads(&pod, (1, Some(3), None, None, None), "PyTorchJob or a script decides");
    // What was started within such a pod knows better.
    assert_eq!(numbers(&read(&with(&pod, &OPEN_MPI)).unwrap()), (2, Some(6), Some(0), Some(2), None));
    assert_eq!(read(&with(&pod, &SRUN)).unwrap().rank(), 9);
}

#[test]
fn torchrun_wins_over_the_launcher_that_started_it() {
    for outer in [&SRUN[..], &OPEN_MPI] {
        let rank = read(&with(outer, &TORCHRUN)).unwrap();
        assert_eq!(numbers(&rank), (5, Some(8), Some(1), Some(4), Some(1)));
        assert!(
            rank.explain().contains("is passed over, since torchrun comes before it"),
            "{}",
            rank.explain()
        );
    }
    assert_eq!(read(&with(&SRUN, &OPEN_MPI)).unwrap().rank(), 2, "mpirun wins over srun");
}

#[test]
fn what_is_empty_or_negative_is_not_set() {
    for unset in ["", " ", "-1", "-99999999999999999999999"] {
        assert_reads(
            &[("RANK", unset), ("WORLD_SIZE", unset), ("LOCAL_RANK", unset)],
            (0, Some(1), Some(0), Some(1), None),
            "no launcher",
        );
        assert_eq!(read(&with(&TORCHRUN, &[("LOCAL_WORLD_SIZE", unset)])).unwrap().local_size(), None);
    }
    assert_reads(
        &[("RANK", " 1 "), ("WORLD_SIZE", "2\n")],
        (1, Some(2), None, None, None),
        "PyTorchJob or a script",
    );
    let rank = read(&with(&OPEN_MPI, &[("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "-1")])).unwrap();
    assert_eq!(rank.rank(), 2);
}

#[test]
fn what_counts_pods_never_counts() {
    let rank = read(&[("JOB_COMPLETION_INDEX", "3"), ("PET_NODE_RANK", "1")]).unwrap();
    assert_eq!(numbers(&rank), (0, Some(1), Some(0), Some(1), None));
    let line = r#"it counts pods and not processes: JOB_COMPLETION_INDEX="3", PET_NODE_RANK="1""#;
    assert!(rank.explain().ends_with(line), "{}", rank.explain());
}

#[test]
fn a_virtual_local_rank_is_not_taken_for_the_place_on_the_node() {
    let of = |set: Set<'_>| read(&with(&with(&TORCHRUN, &[("LOCAL_RANK", "0")]), set)).unwrap();
    let virtual_rank = of(&[]);
    assert_eq!(virtual_rank.local_rank(), Some(1));
    let line = "the place on the node is 1, since LOCAL_RANK is 0 for all of them";
    assert!(virtual_rank.explain().contains(line), "{}", virtual_rank.explain());
    // The first of a node is the first, with and without it.
    for rank in ["0", "4"] {
        let first = of(&[("RANK", rank)]);
        assert_eq!(first.local_rank(), Some(0));
        assert!(!first.explain().contains("the place on the node"), "{}", first.explain());
    }
    assert_eq!(of(&[("GROUP_WORLD_SIZE", "")]).local_rank(), Some(1));
    // Nodes of 4, 1 and 3: whether rank 5 is the first of its node does not follow.
    assert_eq!(of(&[("GROUP_WORLD_SIZE", "3")]).local_rank(), None);
    assert_eq!(of(&[("LOCAL_WORLD_SIZE", "")]).local_rank(), None);
    assert_eq!(of(&[("LOCAL_WORLD_SIZE", "1"), ("GROUP_WORLD_SIZE", "8")]).local_rank(), Some(0));
}

#[test]
fn what_contradicts_itself_is_refused_and_no_other_launcher_asked() {
    let within_srun = with(&SRUN, &TORCHRUN);
    let torchrun = |others: Set<'static>| with(&within_srun, others);
    assert_refused(
        &torchrun(&[("RANK", "8")]),
        r#"torchrun: RANK="8": expected a number below 8, since WORLD_SIZE="8"; correct what sets it, or give"#,
    );
    assert_refused(&torchrun(&[("RANK", "1.5")]), r#"torchrun: RANK="1.5": expected a number; "#);
    assert_refused(
        &torchrun(&[("RANK", "99999999999999999999")]),
        r#"torchrun: RANK="99999999999999999999""#,
    );
    assert_refused(
        &torchrun(&[("GROUP_RANK", "a\u{1b}")]),
        r#"torchrun: GROUP_RANK="a\u{1b}": expected a number"#,
    );
    assert_refused(&torchrun(&[("WORLD_SIZE", "0")]), r#"torchrun: WORLD_SIZE="0": expected 1 or more"#);
    assert_refused(
        &torchrun(&[("RANK", "-1")]),
        r#"torchrun: RANK="-1": expected the number of this process, since"#,
    );
    assert_refused(
        &without(&torchrun(&[]), "RANK"),
        "torchrun: RANK is not set: expected the number of this process",
    );
    assert_refused(
        &without(&torchrun(&[]), "WORLD_SIZE"),
        "torchrun: WORLD_SIZE is not set: expected the number of",
    );
    assert_refused(
        &torchrun(&[("LOCAL_RANK", "4")]),
        r#"torchrun: LOCAL_RANK="4": expected a number below 4, since LOCAL_WORLD_SIZE="4""#,
    );
    assert_refused(
        &torchrun(&[("LOCAL_RANK", ""), ("LOCAL_WORLD_SIZE", "0")]),
        r#"torchrun: LOCAL_WORLD_SIZE="0": expected 1 or more"#,
    );
    assert_refused(
        &torchrun(&[("LOCAL_WORLD_SIZE", "9")]),
        r#"torchrun: LOCAL_WORLD_SIZE="9": expected 8 or less, since WORLD_SIZE="8""#,
    );
}

#[test]
fn half_of_a_rank_is_refused() {
    assert_refused(
        &[("RANK", "3")],
        r#"PyTorchJob or a script: WORLD_SIZE is not set: expected the number of processes, since RANK="3""#,
    );
    assert_refused(&[("WORLD_SIZE", "4"), ("LOCAL_RANK", "0")], "PyTorchJob or a script: RANK is not set");
    assert_refused(&[("OMPI_COMM_WORLD_SIZE", "4")], "Open MPI: OMPI_COMM_WORLD_RANK is not set");
    assert_refused(&[("PMI_RANK", "0")], "MPICH or Intel MPI: PMI_SIZE is not set");
    assert_refused(&[("PALS_LOCAL_RANKID", "0")], "Cray PALS: PMIX_RANK is not set");
    assert_refused(&[("SLURM_STEP_NODELIST", "n1"), ("SLURM_NTASKS", "2")], "srun: SLURM_PROCID is not set");
}

#[test]
fn a_rank_that_is_given_is_checked_as_well() {
    let rank = Rank::new(5, 8).unwrap().local(1, 4).unwrap();
    assert_eq!(numbers(&rank), (5, Some(8), Some(1), Some(4), None));
    assert_eq!(rank.explain(), "given by the caller");
    assert_eq!(numbers(&Rank::from(5)), (5, None, None, None, None));
    assert_eq!(Rank::from(5).local(1, 4).unwrap().local_size(), Some(4));
    assert_eq!(Rank::from(&rank), rank);

    let refused = |error: Error| (error.kind(), error.to_string());
    let (kind, message) = refused(Rank::new(8, 8).unwrap_err());
    assert_eq!(kind, "BadRank");
    let expected = r#"the rank that was given: rank="8": expected a number below 8, since world="8"; ranks count from 0"#;
    assert_eq!(message, expected);
    assert!(refused(Rank::new(0, 0).unwrap_err()).1.contains(r#"world="0": expected 1 or more"#));
    let local = |place, size| refused(Rank::new(0, 2).unwrap().local(place, size).unwrap_err()).1;
    assert!(local(2, 2).contains(r#"local_rank="2": expected a number below 2"#));
    assert!(local(0, 3).contains(r#"local_size="3": expected 2 or less"#));
    assert!(local(0, 0).contains(r#"local_size="0": expected 1 or more"#));
}

#[test]
fn ranks_are_equal_whoever_says_them() {
    let read = read(&[("RANK", "1"), ("WORLD_SIZE", "3")]).unwrap();
    assert_eq!(read, Rank::new(1, 3).unwrap());
    assert_ne!(read, Rank::from(1));
}

#[test]
fn the_explanation_has_the_variables_that_decided_and_in_a_line_each_who_was_passed_over() {
    let text = read(&with(&OPEN_MPI[..2], &SRUN[1..4])).unwrap().explain().to_owned();
    let expected = r#"Open MPI decides: OMPI_COMM_WORLD_RANK="2", OMPI_COMM_WORLD_SIZE="6"
srun is passed over, since SLURM_STEP_NODELIST is not set: SLURM_PROCID="9", SLURM_STEP_NUM_TASKS="11", SLURM_NTASKS="11""#;
    assert_eq!(text, expected);
    let lines = |set| read(set).unwrap().explain().lines().count();
    assert_eq!(lines(&TORCHRUN), 1, "no launcher is passed over for variables that decided");
    let control = read(&with(&OPEN_MPI, &[("SLURM_PROCID", "\u{1b}[2J\n")])).unwrap();
    assert!(control.explain().contains(r#"SLURM_PROCID="\u{1b}[2J""#), "{}", control.explain());
}

/// All variables that mean something, each with a text that may mean something.
fn environments() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let mut names: Vec<&str> = LAUNCHERS.iter().flat_map(|launcher| launcher.variables()).collect();
    names.extend(COUNT_PODS);
    names.sort_unstable();
    names.dedup();
    let text = prop_oneof![
        6 => (0..9_u32).prop_map(|number| number.to_string()),
        1 => prop::sample::select(vec!["", "-1", "x", "4(x2),3", "2(x8)", "64"]).prop_map(str::to_owned),
    ];
    // Few enough variables that each launcher comes to decide, and complete enough that some are read.
    (0..=names.len()).prop_flat_map(move |count| {
        let texts = proptest::collection::vec(text.clone(), count);
        (prop::sample::subsequence(names.clone(), count), texts)
            .prop_map(|(names, texts)| names.into_iter().zip(texts).collect())
    })
}

proptest! {
    #[test]
    fn no_rank_is_put_together_of_what_two_launchers_say(environment in environments()) {
        let get = |name: &str| Some(environment.iter().find(|(set, _)| *set == name)?.1.clone());
        let all = Rank::from_vars(get);
        let vars = Vars::new(&get);
        let Some(decides) = LAUNCHERS.iter().find(|launcher| launcher.is_there(&vars)) else {
            prop_assert_eq!(all.unwrap(), Rank::new(0, 1).unwrap().local(0, 1).unwrap());
            return Ok(());
        };
        // Without all that it does not set, the launcher says the same.
        let its = decides.variables();
        let alone = Rank::from_vars(|name| if its.contains(&name) { get(name) } else { None });
        match (all, alone) {
            (Ok(all), Ok(alone)) => {
                prop_assert_eq!(&all, &alone);
                prop_assert!(all.world().is_none_or(|world| all.rank() < world));
                prop_assert!(all.local_size().is_none_or(|size| all.local_rank().unwrap_or(0) < size));
                // And no number comes from nowhere.
                let said: Vec<String> = its.iter().filter_map(|name| get(name)).collect();
                prop_assert!(said.contains(&all.rank().to_string()));
            }
            (all, alone) => {
                let (all, alone) = (all.unwrap_err().to_string(), alone.unwrap_err().to_string());
                prop_assert!(its.iter().any(|name| all.contains(name)), "{}", all);
                prop_assert_eq!(all, alone);
            }
        }
    }
}

//! What came of the runs, in at most 120 columns.

use crate::competitor::Competitor;
use crate::sample::Sample;

/// Prints a line for each competitor. The samples are by round and competitor.
pub(crate) fn print(title: &str, rounds: &[Vec<Sample>], competitors: &[Competitor<'_>]) {
    let bytes = rounds.iter().flatten().next().map_or(0, |sample| sample.bytes);
    println!("\n{title} ({:.1} MB, {} rounds)", mega(bytes), rounds.len());
    let is_delayed = rounds.iter().flatten().any(|sample| sample.requests.is_some());
    println!(
        "{:<38} {:>9} {:>4} {:>5} {:>6} {:>11} {:>8} {:>8} {:>6} {:>7} {:>7}",
        "",
        "median ms",
        "± %",
        "GB/s",
        "ratio",
        "quartiles",
        "of limit",
        "CPU s/GB",
        if is_delayed { "served" } else { "device" },
        if is_delayed { "reads" } else { "faults" },
        "peak MB",
    );
    let limit = quickest_limit(rounds, competitors);
    for (number, competitor) in competitors.iter().enumerate() {
        let of = |figure: &dyn Fn(&Sample) -> Option<f64>| -> [f64; 3] {
            quartiles(rounds.iter().map(|round| figure(&round[number]).unwrap_or(f64::NAN)).collect())
        };
        let to = |other: usize| {
            quartiles(rounds.iter().map(|round| round[number].seconds / round[other].seconds).collect())
        };
        let seconds = of(&|sample| Some(sample.seconds));
        let per_byte = |count: Option<f64>| count.map(|count| count / float(bytes));
        let cpu_seconds = of(&|sample| per_byte(sample.cpu_seconds))[1] * 1e9;
        let device = of(&|sample| per_byte(sample.device_bytes.map(float)))[1];
        let count =
            of(&|sample| if is_delayed { sample.requests } else { sample.minor_faults }.map(float))[1];
        let peak = of(&|sample| sample.peak_bytes.map(mega))[1];
        let ratio = to(0);
        let of_limit = limit.map_or_else(String::new, |limit| format!("{:.2}", 1.0 / to(limit)[1]));
        println!(
            "{:<38} {:>9.2} {:>4.0} {:>5.1} {:>6.2} {:>11} {of_limit:>8} {cpu_seconds:>8.2} {device:>6.2} {count:>7.0} {peak:>7.0}",
            competitor.name,
            seconds[1] * 1e3,
            (seconds[2] - seconds[0]) / seconds[1] * 50.0,
            float(bytes) / seconds[1] / 1e9,
            ratio[1],
            format!("{:.2}..{:.2}", ratio[0], ratio[2]),
        );
    }
}

/// The limit that has the least median time, if there is one.
fn quickest_limit(rounds: &[Vec<Sample>], competitors: &[Competitor<'_>]) -> Option<usize> {
    let median = |&number: &usize| quartiles(rounds.iter().map(|round| round[number].seconds).collect())[1];
    let limits = (0..competitors.len()).filter(|&number| competitors[number].is_limit());
    limits.min_by(|one, other| median(one).total_cmp(&median(other)))
}

/// The first quartile, the median and the third, each a value that was measured.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    [last / 4, last / 2, (last * 3).div_ceil(4)].map(|place| values.get(place).copied().unwrap_or(f64::NAN))
}

fn mega(bytes: u64) -> f64 {
    float(bytes) / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
fn float(count: u64) -> f64 {
    count as f64
}

//! What a run comes to: its report, its last lines, and whether it passed.

use std::path::Path;
use std::time::Instant;

use crate::Failure;
use crate::report::{self, Story, summary};

/// Writes the report where one is wanted, prints the run in a few lines, and judges it: what was found is
/// a broken promise, what went wrong here is not.
pub fn judge(story: &Story, report: Option<&Path>) -> Result<(), Failure> {
    if let Some(path) = report {
        write(path, story)?;
    }
    let sums = summary::of(story);
    let faults: Vec<String> = sums.faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    println!(
        "{} operations ({} answered, {} refused, {} unknown); {} faults: {}",
        sums.ok + sums.failed + sums.unknown,
        sums.ok,
        sums.failed,
        sums.unknown,
        sums.faults.values().sum::<usize>(),
        faults.join(", ")
    );
    println!(
        "writes possible {:.2} % of the time, longest gap {:.2} s; {} changes of leader",
        100.0 * sums.availability.share().unwrap_or(0.0),
        sums.availability.longest_us() as f64 / 1e6,
        sums.leader_changes
    );
    for verdict in &story.verdicts {
        let found = match (verdict.judged, verdict.findings.len()) {
            (0, 0) => "nothing judged".to_owned(),
            (judged, 0) => format!("held ({judged} judged)"),
            (_, count) => format!("BROKEN: {count} finding(s)"),
        };
        println!("  {:<10} {}: {found}", verdict.workload, verdict.promise);
    }
    println!("violations: {}", sums.findings);
    verdict_on(story)
}

fn write(path: &Path, story: &Story) -> Result<(), Failure> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let began = Instant::now();
    report::write(path, story)?;
    let record = path.with_extension("json");
    report::save(&record, story)?;
    let took = began.elapsed().as_secs_f64();
    println!("report: {}; record: {} ({took:.1} s)", path.display(), record.display());
    Ok(())
}

/// What a run has come to: a finding is a broken promise; where the harness failed, or a promise was
/// not judged, nothing is proved.
fn verdict_on(story: &Story) -> Result<(), Failure> {
    let broken = story.verdicts.iter().filter(|verdict| !verdict.findings.is_empty());
    let findings: Vec<String> = broken
        .flat_map(|verdict| {
            let head = format!("{}: {}", verdict.workload, verdict.promise);
            verdict.findings.iter().map(move |finding| format!("{head}: {finding}"))
        })
        .collect();
    Failure::from_findings(&format!("again with {}", story.replay), findings)?;
    let unjudged = story.verdicts.iter().filter(|verdict| verdict.judged == 0);
    let unjudged =
        unjudged.map(|verdict| format!("nothing judged: {}: {}", verdict.workload, verdict.promise));
    let mut unproved: Vec<String> = story.troubles.iter().cloned().chain(unjudged).collect();
    if story.verdicts.is_empty() {
        unproved.push("nothing was judged".to_owned());
    }
    if unproved.is_empty() { Ok(()) } else { Err(Failure::harness(unproved.join("\n  "))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Verdict;
    use crate::report::sample;

    fn verdict(judged: u64, findings: &[&str]) -> Verdict {
        Verdict {
            workload: "lease".to_owned(),
            promise: "none ends early".to_owned(),
            judged,
            findings: findings.iter().map(ToString::to_string).collect(),
        }
    }

    fn verdict_of(verdicts: Vec<Verdict>, troubles: &[&str]) -> Result<(), Failure> {
        let troubles = troubles.iter().map(ToString::to_string).collect();
        verdict_on(&Story { verdicts, troubles, ..sample::story(1) })
    }

    #[test]
    fn a_run_passes_when_every_promise_was_judged_and_nothing_went_wrong() {
        assert!(verdict_of(vec![verdict(3, &[]), verdict(1, &[])], &[]).is_ok());
    }

    #[test]
    fn a_run_that_lacks_a_part_proves_nothing() {
        for (verdicts, troubles, why) in [
            (vec![], vec![], "nothing was judged"),
            (vec![verdict(3, &[]), verdict(0, &[])], vec![], "nothing judged: lease"),
            (vec![verdict(3, &[])], vec!["no port"], "no port"),
        ] {
            match verdict_of(verdicts, &troubles) {
                Err(Failure::Harness(said)) => assert!(said.contains(why), "{said}"),
                other => panic!("{other:?}, where {why:?} was expected"),
            }
        }
    }

    #[test]
    fn a_finding_is_a_broken_promise_whatever_else_went_wrong() {
        let ended = verdict_of(vec![verdict(0, &["gone"]), verdict(0, &[])], &["no port"]);
        assert!(matches!(ended, Err(Failure::Broken(_))), "{ended:?}");
    }
}

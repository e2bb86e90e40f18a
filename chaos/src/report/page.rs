//! The page, from the verdict at its top to the list of faults at its end.
//!
//! What must be known stands in the page as text; the script only adds numbers under the pointer.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Story;
use super::buckets::{self, Bucket, Grid};
use super::gaps::Availability;
use super::summary::{self, Standing, Summary};
use super::svg::{clock, count, escape, span};
use super::{clients, curves, timeline};
use crate::checker::flat;
use crate::record::Verdict;
use crate::record::trace::{Fault, micros};

/// Of the main picture: about two of its units each.
const BUCKETS_MAX: usize = 480;
/// The rest of the findings of one promise are counted, not shown.
const FINDINGS_MAX: usize = 50;
const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The whole page.
pub fn html(story: &Story) -> String {
    let summary = summary::of(story);
    let length_us = length_us(story);
    let grid = Grid::over(length_us, BUCKETS_MAX);
    let dealt = buckets::deal(grid, story.record.ops.iter());
    let picture = timeline::draw(story, grid, &dealt, &summary.availability);
    let title = format!("{} on {}: {}", story.scenario, story.target, standing_word(summary.standing));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{}</title><style>{STYLE}</style></head><body><main>",
        escape(&title)
    );
    page += &banner(story, &summary);
    page += &troubles(story);
    page += &tiles(&summary);
    page += &verdicts(story);
    page += &section(
        "Timeline",
        &format!(
            "{}<div class=\"scroll\">{picture}</div><p class=\"small\">Each column is {}. Red: nobody's write was \
             acknowledged for at least half a second though somebody wanted to write. Dashed: another leader.</p>",
            legend(story),
            span(grid.width_us)
        ),
    );
    page += &sampled(story, length_us);
    page += &faults(story, &summary.availability, length_us);
    page += &about(story, &summary);
    let _ = writeln!(
        page,
        "</main><div id=\"tip\" hidden></div><script type=\"application/json\" id=\"data\">{}</script>\
         <script>{SCRIPT}</script></body></html>",
        data(story, grid, &dealt)
    );
    page
}

/// Of the run as drawn: to the last thing that is known about it.
fn length_us(story: &Story) -> u64 {
    let ops = story.record.ops.iter().map(|op| op.returned_us).max().unwrap_or(0);
    let faults = story.record.faults.iter().filter_map(|fault| fault.healed_us).max().unwrap_or(0);
    ops.max(faults).max(if ops == 0 { micros(story.length) } else { 0 }).max(1)
}

fn section(title: &str, body: &str) -> String {
    format!("<section><h2>{}</h2>{body}</section>", escape(title))
}

fn standing_word(standing: Standing) -> &'static str {
    match standing {
        Standing::Held => "held",
        Standing::Broken => "broken",
        Standing::Unproved => "not proved",
    }
}

fn banner(story: &Story, summary: &Summary) -> String {
    let promises = story.verdicts.len();
    let (class, mark, headline) = match summary.standing {
        Standing::Held => ("held", "✓", "Every promise held".to_owned()),
        Standing::Broken => {
            let broken = story.verdicts.iter().filter(|verdict| !verdict.findings.is_empty()).count();
            ("broken", "✗", format!("{broken} of {promises} promises broken"))
        }
        Standing::Unproved if summary.judged == 0 => ("unproved", "?", "Nothing was proved".to_owned()),
        Standing::Unproved => ("unproved", "?", "Not everything was proved".to_owned()),
    };
    let mut detail = format!(
        "{promises} promises, {} operations and events judged, {} {}.",
        count(summary.judged),
        count(summary.findings as u64),
        if summary.findings == 1 { "violation" } else { "violations" }
    );
    if 0 < summary.unjudged {
        let _ = write!(detail, " {} of them had nothing to be judged by.", summary.unjudged);
    }
    format!(
        "<header class=\"{class}\"><p class=\"eyebrow\">meerkat-chaos · {} · {} · {}</p>\
         <h1><span class=\"mark\">{mark}</span>{headline}</h1><p>{detail}</p>\
         <p class=\"replay\"><span>seed {}, again with</span><code>{}</code></p></header>",
        escape(&story.scenario),
        escape(&story.target),
        escape(&span(micros(story.length))),
        story.seed,
        escape(&story.replay)
    )
}

/// Where the harness failed comes before everything it has to say.
fn troubles(story: &Story) -> String {
    if story.troubles.is_empty() {
        return String::new();
    }
    let each = |trouble: &String| format!("<li><pre>{}</pre></li>", escape(trouble));
    let list: String = story.troubles.iter().map(each).collect();
    section("Where the harness failed", &format!("<ol>{list}</ol>"))
}

fn tiles(summary: &Summary) -> String {
    let total = summary.ok + summary.failed + summary.unknown;
    let share =
        summary.availability.share().map_or("–".to_owned(), |share| format!("{:.3} %", share * 100.0));
    let latency = summary.latency.unwrap_or_default();
    let gaps = summary.availability.gaps.len();
    let kinds = summary.faults.len();
    let tiles = [
        (
            "operations",
            count(total as u64),
            format!(
                "{} ok, {} refused, {} unknown",
                count(summary.ok as u64),
                count(summary.failed as u64),
                count(summary.unknown as u64)
            ),
        ),
        (
            "faults",
            count(summary.faults.values().sum::<usize>() as u64),
            format!("of {kinds} {}", if kinds == 1 { "kind" } else { "kinds" }),
        ),
        (
            "writes available",
            share,
            format!("{gaps} {} of 0.5 s or more", if gaps == 1 { "gap" } else { "gaps" }),
        ),
        ("longest gap", span(summary.availability.longest_us()), "without an acknowledged write".to_owned()),
        ("leader changes", count(summary.leader_changes as u64), "seen from outside".to_owned()),
        ("latency p99", span(latency.p99), format!("p50 {}, max {}", span(latency.p50), span(latency.max))),
    ];
    let mut page = String::from("<div class=\"tiles\">");
    for (name, value, detail) in tiles {
        let _ = write!(
            page,
            "<div class=\"tile\"><span>{name}</span><b>{value}</b><small>{detail}</small></div>"
        );
    }
    page + "</div>"
}

fn verdicts(story: &Story) -> String {
    if story.verdicts.is_empty() {
        return section("Verdicts", "<p>No workload judged anything.</p>");
    }
    // What is broken first, then what is not proved.
    let mut order: Vec<&Verdict> = story.verdicts.iter().collect();
    order.sort_by_key(|verdict| (verdict.findings.is_empty(), 0 < verdict.judged));
    let mut rows = String::new();
    for verdict in order {
        let (class, mark) = match (verdict.findings.len(), verdict.judged) {
            (1.., _) => ("broken", "✗ broken"),
            (0, 0) => ("unproved", "? unproved"),
            (0, _) => ("held", "✓ held"),
        };
        let _ = write!(
            rows,
            "<tr><td><span class=\"tag {class}\">{mark}</span></td><th>{}</th><td>{}</td><td class=\"n\">{}</td></tr>",
            escape(&verdict.promise),
            escape(&verdict.workload),
            count(verdict.judged)
        );
        if !verdict.findings.is_empty() {
            let _ = write!(rows, "<tr class=\"findings\"><td colspan=\"4\">{}</td></tr>", findings(verdict));
        }
    }
    section(
        "Verdicts",
        &format!(
            "<div class=\"scroll\"><table class=\"verdicts\"><thead><tr><td></td><th>promise</th><td>workload</td>\
             <td class=\"n\">judged</td></tr></thead><tbody>{rows}</tbody></table></div>"
        ),
    )
}

fn findings(verdict: &Verdict) -> String {
    let all = verdict.findings.len();
    let mut list = String::new();
    for finding in verdict.findings.iter().take(FINDINGS_MAX) {
        let _ = write!(list, "<li><pre>{}</pre></li>", escape(finding));
    }
    let more = match all.saturating_sub(FINDINGS_MAX) {
        0 => String::new(),
        more => format!("<p class=\"small\">and {} more</p>", count(more as u64)),
    };
    let what = if all == 1 { "1 finding".to_owned() } else { format!("{} findings", count(all as u64)) };
    format!("<details open><summary>{what}</summary><ol>{list}</ol>{more}</details>")
}

/// Which colour is whose.
fn legend(story: &Story) -> String {
    let mut page = String::from("<p class=\"legend\">");
    for (member, name) in story.members.iter().enumerate() {
        let _ = write!(page, "<span><i class=\"m{}\"></i>{}</span>", member % 8, escape(name));
    }
    let mut families: Vec<&str> =
        story.record.faults.iter().map(|fault| timeline::family(&fault.kind)).collect();
    families.sort_unstable();
    families.dedup();
    for family in families {
        let _ = write!(page, "<span><i class=\"fault {family}\"></i>{family} fault</span>");
    }
    page + "<span><i class=\"ok\"></i>answered</span><span><i class=\"failed\"></i>refused</span>\
            <span><i class=\"unknown\"></i>unknown</span><span><i class=\"line p50\"></i>p50</span>\
            <span><i class=\"line p99\"></i>p99</span><span><i class=\"line max\"></i>max</span></p>"
}

/// Workloads, clients, watchers and processes, where anything is known of them.
fn sampled(story: &Story, length_us: u64) -> String {
    let record = &story.record;
    let mut page = String::new();
    if !record.ops.is_empty() {
        let cards = clients::cards(story, length_us);
        page += &section("Workloads", &format!("<div class=\"cards\">{cards}</div>"));
        let strips = clients::strips(story, length_us);
        let key = "<p class=\"legend\"><span><i class=\"quick\"></i>p99 within 50 ms</span>\
                   <span><i class=\"slow\"></i>within 0.5 s</span><span><i class=\"late\"></i>slower</span>\
                   <span><i class=\"mixed\"></i>a tenth or more without an answer</span>\
                   <span><i class=\"dark\"></i>none answered</span>\
                   <span><i class=\"waiting\"></i>waiting</span></p>";
        let table = clients::table(story);
        let body = format!("{key}{strips}<details><summary>In numbers</summary>{table}</details>");
        page += &section("Clients", &body);
    }
    if !record.lags.is_empty() {
        let cards = curves::lags(story, length_us);
        let what = "<p class=\"small\">By how many revisions each watcher was behind the newest acknowledged \
                    one; one logarithmic scale for all.</p>";
        page += &section("Watchers’ lag", &format!("{what}<div class=\"cards small-cards\">{cards}</div>"));
    }
    if !record.held.is_empty() {
        let body = format!("{}{}", curves::memory(story, length_us), curves::files(story, length_us));
        let what = "<p class=\"small\">A curve is broken where a member’s process is a new one.</p>";
        let levels = levels(story);
        let body = format!("{}{body}{what}{levels}", members_legend(story));
        page += &section("Memory and file descriptors", &body);
    }
    page
}

/// How level each process was, where its life was long enough to tell.
fn levels(story: &Story) -> String {
    let levels = flat::check(&story.record.held, &flat::Demand::default()).levels;
    if levels.is_empty() {
        return String::new();
    }
    let each: String = levels.iter().map(|level| format!("<li>{}</li>", escape(level))).collect();
    format!("<details><summary>How level they were</summary><ul class=\"small\">{each}</ul></details>")
}

fn members_legend(story: &Story) -> String {
    let names = story.members.iter().enumerate();
    let each: String = names
        .map(|(member, name)| format!("<span><i class=\"m{}\"></i>{}</span>", member % 8, escape(name)))
        .collect();
    format!("<p class=\"legend\">{each}</p>")
}

fn faults(story: &Story, availability: &Availability, length_us: u64) -> String {
    if story.record.faults.is_empty() {
        return section("Faults", "<p>None: this run only looked.</p>");
    }
    let mut rows = String::new();
    for fault in &story.record.faults {
        let felt = felt(fault, availability, length_us).map_or("–".to_owned(), span);
        let lasted = fault
            .healed_us
            .map_or("to the end".to_owned(), |healed| span(healed.saturating_sub(fault.struck_us)));
        let _ = write!(
            rows,
            "<tr><td class=\"n\">{}</td><td><i class=\"fault {}\"></i>{}</td><th>{}</th><td class=\"n\">{lasted}</td>\
             <td class=\"n\">{felt}</td></tr>",
            clock(fault.struck_us),
            timeline::family(&fault.kind),
            escape(&fault.kind),
            escape(&fault.what)
        );
    }
    let kinds: BTreeMap<&str, usize> =
        story.record.faults.iter().fold(BTreeMap::new(), |mut kinds, fault| {
            *kinds.entry(fault.kind.as_str()).or_insert(0) += 1;
            kinds
        });
    let kinds: String = kinds
        .iter()
        .map(|(kind, times)| {
            let family = timeline::family(kind);
            format!("<span><i class=\"fault {family}\"></i>{} × {times}</span>", escape(kind))
        })
        .collect();
    section(
        "Faults",
        &format!(
            "<p class=\"legend\">{kinds}</p><details><summary>All {} in order</summary><div class=\"scroll\">\
             <table class=\"verdicts\"><thead><tr><td class=\"n\">at</td><td>kind</td><th>what</th>\
             <td class=\"n\">lasted</td><td class=\"n\">longest gap meanwhile</td></tr></thead><tbody>{rows}</tbody>\
             </table></div></details>",
            count(story.record.faults.len() as u64)
        ),
    )
}

/// The longest gap that began while a fault was there.
fn felt(fault: &Fault, availability: &Availability, length_us: u64) -> Option<u64> {
    let until = fault.healed_us.unwrap_or(length_us);
    // The last acknowledgement may be a breath older than the blow.
    let from = fault.struck_us.saturating_sub(100_000);
    let during = availability.gaps.iter().filter(|gap| from <= gap.from_us && gap.from_us <= until);
    during.map(super::gaps::Gap::length_us).max()
}

fn about(story: &Story, summary: &Summary) -> String {
    let faults: Vec<String> =
        summary.faults.iter().map(|(kind, times)| format!("{kind} × {times}")).collect();
    let rows = [
        ("scenario", story.scenario.clone()),
        ("seed", story.seed.to_string()),
        ("again with", story.replay.clone()),
        ("target", format!("{} {}", story.target, story.version)),
        ("driver", story.driver.clone()),
        ("members", story.members.join(", ")),
        ("length", span(micros(story.length))),
        (
            "operations",
            format!(
                "{} ({} that write): {} ok, {} refused, {} unknown",
                count((summary.ok + summary.failed + summary.unknown) as u64),
                count(summary.writes as u64),
                count(summary.ok as u64),
                count(summary.failed as u64),
                count(summary.unknown as u64)
            ),
        ),
        ("faults", if faults.is_empty() { "none".to_owned() } else { faults.join(", ") }),
        ("violations", count(summary.findings as u64)),
    ];
    let rows: String = rows
        .iter()
        .map(|(name, value)| format!("<tr><td>{name}</td><th>{}</th></tr>", escape(value)))
        .collect();
    section(
        "The run",
        &format!("<div class=\"scroll\"><table class=\"verdicts about\"><tbody>{rows}</tbody></table></div>"),
    )
}

/// What the script shows under the pointer.
fn data(story: &Story, grid: Grid, dealt: &[Bucket]) -> String {
    let buckets: Vec<[u64; 6]> = dealt
        .iter()
        .map(|bucket| {
            let latency = bucket.latency.unwrap_or_default();
            let counts = [bucket.ok, bucket.failed, bucket.unknown].map(u64::from);
            [counts[0], counts[1], counts[2], latency.p50, latency.p99, latency.max]
        })
        .collect();
    let leaders: Vec<(u64, Option<String>)> = story
        .record
        .leaders
        .iter()
        .map(|led| (led.at_us, led.member.map(|member| timeline::member_name(story, member))))
        .collect();
    let faults: Vec<(u64, Option<u64>, String)> = story
        .record
        .faults
        .iter()
        .map(|fault| (fault.struck_us, fault.healed_us, format!("{}: {}", fault.kind, fault.what)))
        .collect();
    let data = serde_json::json!({
        "width": grid.width_us,
        "buckets": buckets,
        "leaders": leaders,
        "faults": faults,
    });
    // Nothing in a string may look like the end of the element it stands in.
    data.to_string().replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_page_needs_nothing_else_and_says_the_essentials_without_scripts() {
        let mut story = sample::story(60);
        story.verdicts[0].findings.push("client 3 read <5> after 6".to_owned());
        let page = html(&story);
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "the page must not fetch: {outside}");
        }
        let said = page.split("<script").next().expect("a first part");
        for essential in ["1 of 1 promises broken", "client 3 read &lt;5&gt; after 6", "--seed 7", "kill × 6"]
        {
            assert!(said.contains(essential), "{essential}");
        }
    }

    #[test]
    fn nothing_that_a_run_says_becomes_markup() {
        let page = html(&sample::story(60));
        assert_eq!(page.matches("<script").count(), 2, "the data and the script");
        assert!(!page.contains("alert(1)</script>"), "not in the data either");
    }

    #[test]
    fn elements_that_open_also_close() {
        let page = html(&sample::story(60));
        for element in
            ["svg", "section", "table", "tbody", "tr", "td", "th", "div", "details", "span", "text", "p", "i"]
        {
            let opened =
                page.matches(&format!("<{element}>")).count() + page.matches(&format!("<{element} ")).count();
            assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element}");
        }
    }

    #[test]
    fn an_hour_is_a_small_page() {
        let page = html(&sample::story(3_600));
        assert!(page.len() < 1_500_000, "{} bytes", page.len());
    }

    #[test]
    fn a_run_with_troubles_says_so_first() {
        let mut story = sample::story(10);
        assert!(html(&story).contains("Every promise held"));
        story.troubles.push("the disk <of m1> could not be filled".to_owned());
        let page = html(&story);
        assert!(page.contains("Not everything was proved") && !page.contains("Every promise held"));
        let trouble = page.find("the disk &lt;of m1&gt;").expect("it is told");
        assert!(trouble < page.find(">Verdicts<").expect("they are there"));
    }

    #[test]
    fn a_run_of_nothing_has_a_page_that_says_so() {
        let mut story = sample::story(1);
        story.record = crate::record::trace::Record::default();
        story.verdicts.clear();
        assert!(html(&story).contains("Nothing was proved"), "an empty run proves nothing");
    }
}

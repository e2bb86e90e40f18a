//! Which command a line names, by the rule of cobra, the library under etcd's tools.
//!
//! A command is named in full or by a prefix that no other command shares, and its flags may come before it.
//! A flag that the command so far does not know is taken to have a value in the next word, so
//! `--consistency s get a` reads key `a`. The rest of the line stays in its order; the parser judges it.

use std::ffi::OsString;

use clap::{Arg, Command};

/// Names further from a mistyped one than this many edits are not suggested.
const SUGGESTED_EDITS_MAX: usize = 2;

/// A command with the words of its line that are left.
#[derive(Debug, PartialEq, Eq)]
pub struct Named {
    /// Names in full, outermost first; empty for the program itself.
    pub path: Vec<String>,
    pub rest: Vec<OsString>,
    /// Whether another command has to follow.
    pub is_group: bool,
}

/// The first word names no command of the program.
#[derive(Debug, PartialEq, Eq)]
pub struct Unknown {
    pub word: String,
    /// Names that may have been meant.
    pub similar: Vec<String>,
}

impl Unknown {
    /// In cobra's words; `program` is the name that the user typed.
    pub fn text(&self, program: &str) -> String {
        let Unknown { word, similar } = self;
        let mut text = format!("unknown command {word:?} for {program:?}");
        if !similar.is_empty() {
            text.push_str("\n\nDid you mean this?\n");
            similar.iter().for_each(|name| text.push_str(&format!("\t{name}\n")));
        }
        text + &format!("\nRun '{program} --help' for usage.")
    }
}

/// `line` is what follows the program's name. `may_shorten` says of a path whether a prefix may stand for its
/// last name.
pub fn named(
    root: &Command,
    line: Vec<OsString>,
    may_shorten: impl Fn(&[&str]) -> bool,
) -> Result<Named, Unknown> {
    let mut rest = line;
    let mut path: Vec<&str> = Vec::new();
    let mut command = root;
    let mut inherited: Vec<&Arg> = Vec::new();
    while command.has_subcommands() {
        let flags: Vec<&Arg> = inherited.iter().copied().chain(command.get_arguments()).collect();
        let Some(at) = first_word(&rest, &flags) else { break };
        let word = rest[at].to_string_lossy().into_owned();
        let shortened = |name: &str| may_shorten(&[path.as_slice(), &[name]].concat());
        let Some(next) = subcommand(command, &word, shortened) else {
            if path.is_empty() {
                return Err(Unknown { similar: similar(command, &word), word });
            }
            break;
        };
        rest.remove(at);
        path.push(next.get_name());
        inherited.extend(command.get_arguments().filter(|arg| arg.is_global_set()));
        command = next;
    }
    let is_group = command.has_subcommands();
    if is_group {
        // Cobra shows the help of a group whatever words follow, once it knows all the flags.
        let flags: Vec<&Arg> = inherited.into_iter().chain(command.get_arguments()).collect();
        while let Some(at) = first_word(&rest, &flags) {
            rest.remove(at);
        }
        rest.retain(|word| !word.is_empty() && word != "-");
        rest.truncate(rest.iter().position(|word| word == "--").unwrap_or(rest.len()));
    }
    Ok(Named { path: path.into_iter().map(str::to_owned).collect(), rest, is_group })
}

/// Where the first word is that is neither a flag nor the value of one.
fn first_word(line: &[OsString], flags: &[&Arg]) -> Option<usize> {
    let mut at = 0;
    while let Some(word) = line.get(at) {
        let word = word.to_string_lossy();
        match word.as_bytes() {
            b"--" => return None,
            [b'-', ..] if value_follows(&word, flags) => at += 1,
            [b'-', ..] | [] => {}
            _ => return Some(at),
        }
        at += 1;
    }
    None
}

/// Whether the word after this flag is its value.
fn value_follows(flag: &str, flags: &[&Arg]) -> bool {
    if flag.contains('=') {
        return false;
    }
    let mut short = flag.chars().skip(1);
    let known = match (flag.strip_prefix("--"), short.next(), short.next()) {
        (Some("help"), ..) | (None, Some('h'), None) => return false,
        (Some(name), ..) => flags.iter().find(|arg| arg.get_long() == Some(name)),
        (None, Some(letter), None) => flags.iter().find(|arg| arg.get_short() == Some(letter)),
        // Several letters, or one with its value behind it.
        (None, ..) => return false,
    };
    known.is_none_or(|arg| {
        arg.get_action().takes_values() && arg.get_num_args().is_none_or(|count| 0 < count.min_values())
    })
}

/// The one of that name, else the only one whose name begins so.
fn subcommand<'c>(
    command: &'c Command,
    word: &str,
    may_shorten: impl Fn(&str) -> bool,
) -> Option<&'c Command> {
    if let Some(exact) = command.find_subcommand(word) {
        return Some(exact);
    }
    let mut begun = command
        .get_subcommands()
        .filter(|one| one.get_name().starts_with(word) && may_shorten(one.get_name()));
    let only = begun.next()?;
    begun.next().is_none().then_some(only)
}

fn similar(command: &Command, word: &str) -> Vec<String> {
    let word = word.to_lowercase();
    let names = command.get_subcommands().map(Command::get_name);
    names
        .filter(|name| name.starts_with(&word) || edits(name, &word) <= SUGGESTED_EDITS_MAX)
        .map(str::to_owned)
        .collect()
}

/// Letters to add, to take away or to change between the two (Levenshtein).
fn edits(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, against) in other.chars().enumerate() {
            let changed = diagonal + usize::from(letter != against);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.chars().count()]
}

#[cfg(test)]
mod tests {
    use clap::ArgAction;

    use super::*;

    fn tree() -> Command {
        let switch = |name: &'static str| {
            Arg::new(name).long(name).num_args(0..=1).require_equals(true).default_missing_value("true")
        };
        let text = |name: &'static str| Arg::new(name).long(name);
        Command::new("tool")
            .arg(text("endpoints").global(true).action(ArgAction::Append))
            .arg(text("write-out").short('w').global(true))
            .arg(switch("hex").global(true))
            .subcommands([
                Command::new("get").arg(switch("prefix")).arg(text("consistency")),
                Command::new("del"),
                Command::new("defrag"),
                Command::new("compaction"),
                Command::new("completion"),
                Command::new("member").subcommands(["list", "add"].map(Command::new)),
                Command::new("endpoint")
                    .arg(switch("cluster").global(true))
                    .subcommands(["status", "health"].map(Command::new)),
                Command::new("serve"),
            ])
    }

    fn read(line: &str) -> Result<Named, Unknown> {
        let line = line.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect();
        named(&tree(), line, |path| path != ["serve"])
    }

    /// `path | rest`, with a `…` where a command is missing.
    fn check(line: &str, expected: &str) {
        let named = read(line).unwrap_or_else(|unknown| panic!("{line}: {unknown:?}"));
        let rest: Vec<_> = named.rest.iter().map(|word| word.to_string_lossy()).collect();
        let group = if named.is_group { " …" } else { "" };
        assert_eq!(format!("{}{group} | {}", named.path.join(" "), rest.join(" ")), expected, "{line}");
    }

    #[test]
    fn unique_prefix_names_a_command() {
        check("get a", "get | a");
        check("g a b", "get | a b");
        check("compact 2", "compaction | 2");
        check("mem l", "member list | ");
        check("end st --cluster", "endpoint status | --cluster");
    }

    #[test]
    fn ambiguous_prefix_names_none() {
        for (line, similar) in [
            ("de", &["get", "del", "defrag"][..]),
            ("comp", &["compaction", "completion"]),
            ("gte", &["get"]),
            ("bogus", &[]),
            ("--consistency get a", &[]),
            ("ser", &["get", "del", "serve"]),
        ] {
            let unknown = read(line).expect_err(line);
            assert_eq!(unknown.similar, similar, "{line}");
        }
        check("member x", "member … | ");
    }

    #[test]
    fn flags_stand_before_the_command() {
        check("--consistency s get a", "get | --consistency s a");
        check("--consistency=s get a", "get | --consistency=s a");
        check("--endpoints e:1 -w json get a", "get | --endpoints e:1 -w json a");
        check("-wjson --hex get a", "get | -wjson --hex a");
        check(
            "--hex=true --endpoints=e:1 mem --id 5 add x",
            "member add | --hex=true --endpoints=e:1 --id 5 x",
        );
        check("endpoint --cluster health", "endpoint health | --cluster");
        check("--help get", "get | --help");
        check("-h get", "get | -h");
    }

    #[test]
    fn words_of_a_group_are_left_out_and_its_flags_stay() {
        check("", " … | ");
        check("--hex", " … | --hex");
        check("member nonsense --hex -w json more", "member … | --hex -w json");
        check("-- get a", " … | ");
        check("get -- -a", "get | -- -a");
    }

    #[test]
    fn unknown_command_is_told_in_cobras_words() {
        let unknown = |line| read(line).expect_err("unknown").text("etcdctl");
        assert_eq!(
            unknown("de"),
            "unknown command \"de\" for \"etcdctl\"\n\nDid you mean this?\n\tget\n\tdel\n\tdefrag\n\nRun 'etcdctl --help' for usage."
        );
        assert_eq!(
            unknown("bogus"),
            "unknown command \"bogus\" for \"etcdctl\"\nRun 'etcdctl --help' for usage."
        );
    }

    #[test]
    fn edits_count_letters() {
        for (one, other, expected) in [
            ("", "", 0),
            ("get", "", 3),
            ("get", "get", 0),
            ("get", "gat", 1),
            ("member", "menber", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(edits(one, other), expected, "{one} {other}");
            assert_eq!(edits(other, one), expected, "{other} {one}");
        }
    }
}

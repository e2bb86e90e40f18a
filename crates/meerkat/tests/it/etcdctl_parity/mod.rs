//! `etcdctl` and `meerkat`, command line by command line, on servers of either kind.
//!
//! * [`tools`]: the real tool and ours, each on a real etcd of its own, through the same table.
//! * [`servers`]: the real tools (3.5 and 3.4) on a real etcd and on a member of ours.
//! * [`standing`]: commands that stay (`lock`, `elect`, `make-mirror`), and those that take their time.
//! * [`secure`]: encrypted connections.
//!
//! A table is text, one command line a row, as an operator would type it:
//!
//! ```text
//! put k v                 one row
//! * get k                 five rows, one in each output format
//! + put k v               the four formats that can show what a change answers
//! put k <<< v             with input
//! get a '' 'b c'          quotes keep empty words and spaces
//! # a remark
//! ```

mod said;
mod secure;
mod servers;
mod standing;
mod tools;

const FORMATS: [&str; 5] = ["simple", "json", "fields", "table", "protobuf"];

/// A command line of a table, ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    words: Vec<String>,
    input: String,
}

impl Row {
    fn text(&self) -> String {
        self.words.join(" ")
    }
}

/// The rows of a table, in order.
fn rows(table: &str) -> Vec<Row> {
    let lines = table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.flat_map(rows_of_line).collect()
}

fn rows_of_line(line: &str) -> Vec<Row> {
    let (line, input) = line.split_once(" <<< ").unwrap_or((line, ""));
    let formats = |list: &[&str], line: &str| {
        list.iter()
            .map(|format| {
                let mut row = one_row(line, input);
                row.words.extend(["-w".to_owned(), (*format).to_owned()]);
                row
            })
            .collect()
    };
    let without_table: Vec<&str> = FORMATS.into_iter().filter(|format| *format != "table").collect();
    match line.split_at_checked(2) {
        Some(("* ", rest)) => formats(&FORMATS, rest),
        Some(("+ ", rest)) => formats(&without_table, rest),
        _ => vec![one_row(line, input)],
    }
}

fn one_row(line: &str, input: &str) -> Row {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    Row { words, input: input.replace("\\n", "\n") }
}

#[test]
fn a_table_is_read_as_it_is_typed() {
    let read = rows("# remark\n\nget a '' 'b c'\n* user list\n+ put k <<< v\\n\n");
    assert_eq!(read.len(), 1 + 5 + 4);
    assert_eq!(read[0].words, ["get", "a", "", "b c"]);
    assert_eq!(read[4].text(), "user list -w table");
    assert_eq!((read[9].text().as_str(), read[9].input.as_str()), ("put k -w protobuf", "v\n"));
}

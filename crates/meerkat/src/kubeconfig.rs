//! `meerkat kubeconfig`: the file with which `kubectl` and its kin find a list-watch door.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::failure::Failure;

#[derive(Args, Debug)]
pub struct KubeconfigArgs {
    /// The door
    #[arg(long, default_value = "http://127.0.0.1:2378")]
    server: String,
    /// Write here [default: standard output]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Where kubectl looks unless told otherwise
    #[arg(long, default_value = "default")]
    namespace: String,
    /// Replace the file if there is one
    #[arg(long)]
    force: bool,
}

pub fn run(args: &KubeconfigArgs) -> Result<(), Failure> {
    let text = kubeconfig(&args.server, &args.namespace).map_err(Failure::bad_arguments)?;
    let Some(path) = &args.out else {
        std::io::stdout().write_all(text.as_bytes())?;
        eprintln!("save this as a file, then: kubectl --kubeconfig FILE get namespaces");
        return Ok(());
    };
    write(path, &text, args.force)?;
    eprintln!("try: kubectl --kubeconfig {} get namespaces", path.display());
    Ok(())
}

fn write(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let mut options = File::options();
    match force {
        true => options.write(true).create(true).truncate(true),
        false => options.write(true).create_new(true),
    };
    let file = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    file.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::error(format!("{} exists: --force replaces it", path.display())),
        _ => Failure::error(format!("cannot write {}: {error}", path.display())),
    })
}

/// The file's text, or what is wrong with the arguments.
fn kubeconfig(server: &str, namespace: &str) -> Result<String, String> {
    let uri: http::Uri = server.parse().map_err(|error| format!("--server {server:?}: {error}"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
        return Err(format!("--server {server:?}: expected http://host:port"));
    }
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if namespace.is_empty() || 63 < namespace.len() || !namespace.bytes().all(plain) {
        return Err(format!("--namespace {namespace:?}: expected lower case letters, digits and dashes"));
    }
    // A text of JSON is one of YAML too. A name that is all digits would else be a number.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let (server, namespace) = (quoted(server.trim_end_matches('/')), quoted(namespace));
    Ok(format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: meerkat\n\
         \x20 cluster:\n\
         \x20   server: {server}\n\
         contexts:\n\
         - name: meerkat\n\
         \x20 context:\n\
         \x20   cluster: meerkat\n\
         \x20   user: meerkat\n\
         \x20   namespace: {namespace}\n\
         current-context: meerkat\n\
         users:\n\
         - name: meerkat\n\
         \x20 user: {{}}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_names_the_door_and_the_namespace() {
        let text = kubeconfig("http://127.0.0.1:2378/", "7").expect("good arguments");
        assert!(text.contains("\n    server: \"http://127.0.0.1:2378\"\n"), "{text}");
        assert!(text.contains("\n    namespace: \"7\"\n"), "{text}");
        assert!(text.contains("\ncurrent-context: meerkat\n"), "{text}");
        assert!(text.ends_with("\n  user: {}\n"), "{text}");
    }

    #[test]
    fn what_kubectl_could_not_use_is_refused() {
        for (server, namespace) in
            [("127.0.0.1:2378", "a"), ("ftp://a:1", "a"), ("http://a:1", ""), ("http://a:1", "a\nb")]
        {
            assert!(kubeconfig(server, namespace).is_err(), "{server} {namespace:?}");
        }
    }

    #[test]
    fn a_file_that_is_there_is_replaced_only_on_demand() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("config");
        write(&path, "one", false).expect("a new file");
        let refused = write(&path, "two", false).expect_err("it is there");
        assert!(refused.message.contains("--force"), "{refused}");
        write(&path, "three", true).expect("on demand");
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), "three");
    }
}

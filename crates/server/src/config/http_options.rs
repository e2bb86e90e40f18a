//! What is served over HTTP beside gRPC, and to whom.

/// The flags `--enable-grpc-gateway`, `--cors`, `--host-whitelist` and `--metrics`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpOptions {
    /// Whether the JSON gateway is served.
    pub gateway: bool,
    /// Origins whose pages may read answers; `*` or none at all: every one.
    pub cors: Vec<String>,
    /// Names by which a client without TLS may ask for this member; `*` or none at all: every one.
    pub host_whitelist: Vec<String>,
    /// Whether the time that each call takes is measured, too.
    pub extensive_metrics: bool,
}

impl Default for HttpOptions {
    fn default() -> HttpOptions {
        HttpOptions { gateway: true, cors: list("*"), host_whitelist: list("*"), extensive_metrics: false }
    }
}

impl HttpOptions {
    /// From the flags as they are written.
    pub fn new(
        gateway: bool,
        cors: &str,
        host_whitelist: &str,
        metrics: &str,
    ) -> Result<HttpOptions, String> {
        let extensive_metrics = match metrics {
            "basic" | "" => false,
            "extensive" => true,
            other => return Err(format!("--metrics is {other:?}: it can be basic or extensive")),
        };
        let (cors, host_whitelist) = (list(cors), list(host_whitelist));
        Ok(HttpOptions { gateway, cors, host_whitelist, extensive_metrics })
    }

    pub(crate) fn allows_origin(&self, origin: &str) -> bool {
        allows(&self.cors, origin)
    }

    pub(crate) fn allows_host(&self, host: &str) -> bool {
        allows(&self.host_whitelist, host)
    }
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

fn allows(list: &[String], item: &str) -> bool {
    list.is_empty() || list.iter().any(|allowed| allowed == "*" || allowed == item)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_allows_what_it_names_and_an_empty_one_everything() {
        let options = |list| HttpOptions::new(true, list, list, "basic").expect("options");
        for (list, named, other) in
            [("*", true, true), ("", true, true), ("a, b", true, false), ("c", false, false)]
        {
            let options = options(list);
            assert_eq!((options.allows_host("a"), options.allows_host("x")), (named, other), "{list}");
            assert_eq!((options.allows_origin("b"), options.allows_origin("x")), (named, other), "{list}");
        }
    }

    #[test]
    fn metrics_are_basic_or_extensive() {
        let extensive =
            |text| HttpOptions::new(true, "*", "*", text).map(|options| options.extensive_metrics);
        assert_eq!((extensive("basic"), extensive("extensive")), (Ok(false), Ok(true)));
        assert!(extensive("all").is_err());
    }
}

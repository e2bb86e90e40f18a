//! `--enable-distributed-tracing` and its neighbours.

use super::ConfigError;
use crate::spans::MILLION;
use http::Uri;

/// The flags as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawTracing {
    pub enabled: bool,
    /// The collector, as `host:port`.
    pub address: String,
    pub service_name: String,
    /// Empty: none.
    pub instance_id: String,
    /// Of a million traces that no caller has decided about.
    pub sampling_rate: i64,
}

impl Default for RawTracing {
    fn default() -> RawTracing {
        RawTracing {
            enabled: false,
            address: "localhost:4317".to_owned(),
            service_name: "etcd".to_owned(),
            instance_id: String::new(),
            sampling_rate: 0,
        }
    }
}

/// Where spans go, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingOptions {
    pub collector: Uri,
    pub service_name: String,
    pub instance_id: Option<String>,
    pub per_million: u32,
}

/// As in etcd, the other flags are not looked at unless tracing is on.
pub(super) fn read(raw: &RawTracing) -> Result<Option<TracingOptions>, ConfigError> {
    if !raw.enabled {
        return Ok(None);
    }
    if raw.sampling_rate < 0 {
        return Err(ConfigError::TracingRate("must be positive".to_owned()));
    }
    let per_million = u32::try_from(raw.sampling_rate).ok().filter(|rate| *rate <= MILLION);
    let Some(per_million) = per_million else {
        return Err(ConfigError::TracingRate(format!("must be less than {MILLION}")));
    };
    Ok(Some(TracingOptions {
        collector: collector(&raw.address)?,
        service_name: raw.service_name.clone(),
        instance_id: Some(raw.instance_id.clone()).filter(|id| !id.is_empty()),
        per_million,
    }))
}

fn collector(address: &str) -> Result<Uri, ConfigError> {
    let uri: Option<Uri> = format!("http://{address}").parse().ok();
    let is_address = |uri: &Uri| {
        let authority = uri.authority().filter(|authority| authority.as_str() == address);
        authority.is_some_and(|authority| {
            !authority.host().is_empty() && authority.port_u16().is_some() && !address.contains('@')
        })
    };
    uri.filter(is_address).ok_or_else(|| ConfigError::TracingAddress(address.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str, sampling_rate: i64, expected: Result<(&str, u32), &str>) {
        let address = address.to_owned();
        let raw = RawTracing { enabled: true, address, sampling_rate, ..RawTracing::default() };
        let found = read(&raw).map_err(|error| error.to_string());
        let found = found.map(|options| options.map(|options| (options.collector, options.per_million)));
        let expected = expected.map(|(uri, rate)| Some((uri.parse().expect("a URI"), rate)));
        assert_eq!(found, expected.map_err(str::to_owned), "{raw:?}");
    }

    #[test]
    fn a_rate_is_a_part_of_a_million_in_etcds_words() {
        for rate in [0, 1, 1_000_000] {
            check("localhost:4317", rate, Ok(("http://localhost:4317", rate.try_into().expect("small"))));
        }
        let invalid =
            |what| format!("distributed tracing configurition is not valid: (tracing sampling rate {what})");
        check("localhost:4317", -1, Err(&invalid("must be positive")));
        check("localhost:4317", 1_000_001, Err(&invalid("must be less than 1000000")));
        check("localhost:4317", i64::MAX, Err(&invalid("must be less than 1000000")));
    }

    #[test]
    fn a_collector_is_a_host_and_a_port() {
        check("10.0.0.1:4317", 0, Ok(("http://10.0.0.1:4317", 0)));
        check("[::1]:4317", 0, Ok(("http://[::1]:4317", 0)));
        for address in [
            "",
            "localhost",
            "localhost:",
            ":4317",
            "localhost:x",
            "http://localhost:4317",
            "a:1/b",
            "u@a:1",
            "a b:1",
        ] {
            let said = format!("--distributed-tracing-address is {address:?}: it must be host:port");
            check(address, 0, Err(&said));
        }
    }

    #[test]
    fn nothing_counts_unless_tracing_is_on() {
        let raw = RawTracing { address: String::new(), sampling_rate: -1, ..RawTracing::default() };
        assert_eq!(read(&raw), Ok(None));
        let on = RawTracing { enabled: true, instance_id: "m1".to_owned(), ..RawTracing::default() };
        let options = read(&on).expect("good").expect("on");
        assert_eq!((options.service_name.as_str(), options.instance_id.as_deref()), ("etcd", Some("m1")));
    }
}

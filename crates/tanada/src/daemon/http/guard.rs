//! Who may use the admin API: requests that a web page makes a browser send are refused.
//!
//! A page on the web can make a browser send requests to 127.0.0.1, and a name server can make its own
//! name point there (DNS rebinding). Such a request carries the page's name in `Host` or `Origin`, so
//! both must name this machine, and the browser says in `Sec-Fetch-Site` that another site asks. A Unix
//! socket is out of a browser's reach and needs none of it.

use std::net::IpAddr;

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};
use config::AdminConfig;
use env::net::Address;

/// Set by browsers: which site's page asks, beside the one that is asked.
const FETCH_SITE: &str = "sec-fetch-site";

/// What the TCP listeners let in.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// Other machines may reach it, in TLS: then any address of this machine may be named.
    pub far: bool,
    /// Names, beside IP addresses and localhost, by which clients may call this machine.
    pub hosts: Vec<String>,
}

impl Guard {
    /// As it is configured.
    pub fn of(admin: &AdminConfig) -> Guard {
        Guard {
            far: admin.addresses().any(Address::is_tls),
            hosts: admin.hosts.clone(),
        }
    }

    /// Refuses a request that came over TCP and whose headers name another host or site; says why.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), String> {
        // `none`: typed into the browser's address line.
        let site = headers.get(FETCH_SITE).map(|site| site.as_bytes());
        if let Some(site) = site.filter(|site| !matches!(*site, b"same-origin" | b"none")) {
            let site = String::from_utf8_lossy(site);
            return Err(format!(
                "the request comes from a page of another site ({site})"
            ));
        }
        let host = match headers.get(HOST).map(|value| value.to_str()) {
            Some(Ok(host)) => host,
            Some(Err(_)) => return Err("the Host header is not a text".to_owned()),
            None => return Err("there is no Host header".to_owned()),
        };
        if !self.names_us(without_port(host)) {
            return Err(format!("the Host header names '{host}', not this machine"));
        }
        match headers.get(ORIGIN).map(|value| value.to_str()) {
            None => Ok(()),
            // A page of our own: its origin is the very host that was asked.
            Some(Ok(origin)) if origin.split_once("://").map(|split| split.1) == Some(host) => {
                Ok(())
            }
            Some(origin) => Err(format!(
                "the request comes from a page at '{}'",
                origin.unwrap_or("(not a text)")
            )),
        }
    }

    fn names_us(&self, host: &str) -> bool {
        let address: Option<IpAddr> = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse()
            .ok();
        match address {
            // An address is no name, so no name server can have changed it.
            Some(address) => address.is_loopback() || self.far,
            None => {
                host.eq_ignore_ascii_case("localhost")
                    || self
                        .hosts
                        .iter()
                        .any(|known| known.eq_ignore_ascii_case(host))
            }
        }
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') =>
        {
            // `::1` without brackets has colons of its own.
            if name.contains(':') && !name.starts_with('[') {
                host
            } else {
                name
            }
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(guard: &Guard, host: &str, origin: Option<&str>) -> Result<(), String> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        guard.check(&headers)
    }

    #[test]
    fn a_rebound_name_is_refused_and_this_machine_is_not() {
        let guard = Guard::default();
        for host in ["127.0.0.1:10880", "localhost:1", "[::1]:10880", "127.0.0.1"] {
            assert_eq!(asked(&guard, host, None), Ok(()), "{host}");
        }
        for host in [
            "evil.example:10880",
            "localhost.evil.example",
            "10.0.0.7:10880",
            "",
        ] {
            assert!(asked(&guard, host, None).is_err(), "{host}");
        }
        assert!(guard.check(&HeaderMap::new()).is_err());
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        let guard = Guard::default();
        let host = "127.0.0.1:10880";
        assert_eq!(asked(&guard, host, Some("http://127.0.0.1:10880")), Ok(()));
        assert!(asked(&guard, host, Some("http://127.0.0.1:9999")).is_err());
        assert!(asked(&guard, host, Some("https://evil.example")).is_err());
        assert!(asked(&guard, host, Some("null")).is_err());
    }

    #[test]
    fn remote_use_takes_addresses_and_the_names_it_was_given() {
        let guard = Guard {
            far: true,
            hosts: vec!["nas.example".to_owned()],
        };
        assert_eq!(asked(&guard, "10.0.0.7:10880", None), Ok(()));
        assert_eq!(asked(&guard, "NAS.example:10880", None), Ok(()));
        assert!(asked(&guard, "evil.example:10880", None).is_err());
    }

    #[test]
    fn a_browser_that_says_another_site_asks_is_refused() {
        let asked = |site: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "127.0.0.1:10880".parse().unwrap());
            headers.insert(FETCH_SITE, site.parse().unwrap());
            Guard::default().check(&headers)
        };
        assert_eq!(asked("same-origin"), Ok(()));
        assert_eq!(asked("none"), Ok(()));
        for site in ["cross-site", "same-site", "", "Same-Origin"] {
            assert!(asked(site).is_err(), "{site}");
        }
    }
}

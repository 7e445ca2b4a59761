//! Values of settings: strict, so that a typing error stops the start instead of silently meaning the default.

/// A whole number, decimal, surrounding blanks ignored. Empty means "not set".
pub(super) fn number(text: &str) -> Result<Option<i64>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| "not a whole number".into())
}

/// `1 true yes y on` or `0 false no n off`, any case. Empty means "not set".
pub(super) fn boolean(text: &str) -> Result<Option<bool>, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "" => Ok(None),
        "1" | "true" | "yes" | "y" | "on" => Ok(Some(true)),
        "0" | "false" | "no" | "n" | "off" => Ok(Some(false)),
        _ => Err("neither true (1 true yes y on) nor false (0 false no n off)".into()),
    }
}

/// Comma list; items are trimmed and empty ones dropped.
pub(super) fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// `host:port` to listen on; an empty host is every address, IPv6 literals stand in brackets.
pub(super) fn listen_address(text: &str) -> Result<String, String> {
    let text = text.trim();
    let (host, port) = text.rsplit_once(':').ok_or("not host:port")?;
    if port.parse::<u16>().is_err() {
        return Err("the port is not a number between 0 and 65535".into());
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err("an IPv6 address stands in brackets".into());
    }
    Ok(text.to_owned())
}

/// The port of an address that [`listen_address`] accepted.
pub(super) fn port(address: &str) -> Option<u16> {
    address.rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (text, value) in [
            ("", Ok(None)),
            ("  ", Ok(None)),
            (" 17 ", Ok(Some(17))),
            ("-1", Ok(Some(-1))),
            ("0x10", Err(())),
            ("1.5", Err(())),
            ("9223372036854775808", Err(())),
            ("5s", Err(())),
        ] {
            assert_eq!(number(text).map_err(drop), value, "{text:?}");
        }
    }

    #[test]
    fn booleans() {
        for text in ["1", "true", "YES", "y", " On "] {
            assert_eq!(boolean(text), Ok(Some(true)), "{text:?}");
        }
        for text in ["0", "False", "no", "N", "off"] {
            assert_eq!(boolean(text), Ok(Some(false)), "{text:?}");
        }
        assert_eq!(boolean(" "), Ok(None));
        for text in ["2", "enabled", "tru", "nope"] {
            assert!(boolean(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn addresses() {
        for (text, value) in [
            (":9092", Some(":9092")),
            ("127.0.0.1:0", Some("127.0.0.1:0")),
            (" kafka:9092 ", Some("kafka:9092")),
            ("[::1]:9092", Some("[::1]:9092")),
            ("::1:9092", None),
            ("9092", None),
            ("host:", None),
            ("host:65536", None),
        ] {
            assert_eq!(listen_address(text).ok().as_deref(), value, "{text:?}");
        }
        assert_eq!(port(":9092"), Some(9092));
        assert_eq!(list(" a:1, ,b:2,"), ["a:1", "b:2"]);
    }
}

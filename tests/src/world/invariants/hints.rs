//! I27: nothing that a client is told names a broker: it knows the proxy only.

/// Hosts of brokers begin like this, those that clients of brokers see and those that faults name.
const HOST: &[u8] = b"broker-";

/// What is wrong with bytes for a client.
pub(in crate::world) fn names_a_broker(bytes: &[u8]) -> Option<String> {
    let at = bytes.windows(HOST.len()).position(|window| window == HOST)?;
    let host = bytes[at..bytes.len().min(at + 2 * HOST.len())].escape_ascii();
    Some(format!("a client is told of '{host}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found() {
        assert_eq!(names_a_broker(b"proxy broker"), None);
        assert_eq!(names_a_broker(b"\x05proxy\x09broker-2\0"), Some(r"a client is told of 'broker-2\x00'".into()));
    }
}

//! What is said on a fresh connection before the first request: SASL, then which versions the broker speaks.
//!
//! SASL PLAIN after RFC 4616, framed as KIP-43 and KIP-152 say: SaslHandshake v1, then SaslAuthenticate v1.
//! A refused or unreadable answer ends the connection: nothing of ours has been sent by then.

use std::collections::BTreeMap;
use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

/// User and password of SASL PLAIN.
#[derive(Clone, PartialEq, Eq)]
pub struct SaslPlain {
    /// User name.
    pub username: String,
    /// Password; never printed.
    pub password: String,
}

impl fmt::Debug for SaslPlain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaslPlain").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Version ranges of a broker, by API key.
pub(crate) type VersionRanges = BTreeMap<i16, (i16, i16)>;

/// Where a handshake stands: the answer to this step is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    SaslHandshake,
    SaslAuthenticate,
    ApiVersions,
}

impl Step {
    /// The step after this one, or the first one.
    pub(crate) fn after(done: Option<Self>, sasl: bool) -> Option<Self> {
        match done {
            None if sasl => Some(Self::SaslHandshake),
            None => Some(Self::ApiVersions),
            Some(Self::SaslHandshake) => Some(Self::SaslAuthenticate),
            Some(Self::SaslAuthenticate) => Some(Self::ApiVersions),
            Some(Self::ApiVersions) => None,
        }
    }

    /// Correlation ids of the handshake; its requests are never in flight together.
    pub(crate) const fn correlation_id(self) -> i32 {
        match self {
            Self::SaslHandshake => 1,
            Self::SaslAuthenticate => 2,
            Self::ApiVersions => 3,
        }
    }

    /// The whole request frame.
    pub(crate) fn request(self, sasl: Option<&SaslPlain>) -> Bytes {
        let (api_key, version) = match self {
            Self::SaslHandshake => (17, 1),
            Self::SaslAuthenticate => (36, 1),
            Self::ApiVersions => (18, 0),
        };
        let mut body = BytesMut::new();
        body.put_i16(api_key);
        body.put_i16(version);
        body.put_i32(self.correlation_id());
        body.put_i16(-1);
        match (self, sasl) {
            (Self::SaslHandshake, _) => {
                body.put_i16(5);
                body.put_slice(b"PLAIN");
            }
            (Self::SaslAuthenticate, Some(plain)) => {
                let length = plain.username.len() + plain.password.len() + 2;
                body.put_i32(i32::try_from(length).expect("user and password are settings of a few bytes"));
                body.put_u8(0);
                body.put_slice(plain.username.as_bytes());
                body.put_u8(0);
                body.put_slice(plain.password.as_bytes());
            }
            (Self::SaslAuthenticate, None) | (Self::ApiVersions, _) => {}
        }
        let mut frame = BytesMut::with_capacity(body.len() + 4);
        frame.put_i32(i32::try_from(body.len()).expect("user and password are settings of a few bytes"));
        frame.put_slice(&body);
        frame.freeze()
    }

    /// Reads the answer payload (correlation id first).
    pub(crate) fn accept(self, payload: &[u8]) -> Result<Option<VersionRanges>, String> {
        let (correlation_id, rest) = payload.split_first_chunk::<4>().ok_or("answer too short")?;
        if i32::from_be_bytes(*correlation_id) != self.correlation_id() {
            return Err("answer with a wrong correlation id".into());
        }
        let (error_code, rest) = rest.split_first_chunk::<2>().ok_or("answer too short")?;
        let error_code = i16::from_be_bytes(*error_code);
        match self {
            Self::SaslHandshake if error_code != 0 => {
                Err(format!("SASL mechanism PLAIN refused with error {error_code}: check what the brokers offer"))
            }
            Self::SaslAuthenticate if error_code != 0 => {
                Err(format!("SASL login refused with error {error_code}: check user name and password"))
            }
            Self::SaslHandshake | Self::SaslAuthenticate => Ok(None),
            Self::ApiVersions if error_code != 0 => Err(format!("ApiVersions refused with error {error_code}")),
            Self::ApiVersions => {
                let (_, entries) = rest.split_first_chunk::<4>().ok_or("answer too short")?;
                let ranges = entries.chunks_exact(6).map(|entry| {
                    let field = |at: usize| i16::from_be_bytes([entry[at], entry[at + 1]]);
                    (field(0), (field(2), field(4)))
                });
                Ok(Some(ranges.collect()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_steps() {
        let walk = |sasl| {
            let mut steps = Vec::new();
            let mut done = None;
            while let Some(step) = Step::after(done, sasl) {
                steps.push(step);
                done = Some(step);
            }
            steps
        };
        assert_eq!(walk(false), [Step::ApiVersions]);
        assert_eq!(walk(true), [Step::SaslHandshake, Step::SaslAuthenticate, Step::ApiVersions]);
    }

    #[test]
    fn the_bytes_of_sasl_plain() {
        let plain = SaslPlain { username: "u".into(), password: "pw".into() };
        let handshake = Step::SaslHandshake.request(Some(&plain));
        assert_eq!(&handshake[..], b"\0\0\0\x11\0\x11\0\x01\0\0\0\x01\xff\xff\0\x05PLAIN");
        let authenticate = Step::SaslAuthenticate.request(Some(&plain));
        assert_eq!(&authenticate[..], b"\0\0\0\x13\0\x24\0\x01\0\0\0\x02\xff\xff\0\0\0\x05\0u\0pw");
        assert!(!format!("{plain:?}").contains("pw"));
    }

    #[test]
    fn answers() {
        assert_eq!(Step::SaslHandshake.accept(b"\0\0\0\x01\0\0\0\0\0\0"), Ok(None));
        assert!(Step::SaslHandshake.accept(b"\0\0\0\x01\0\x21").is_err());
        assert!(Step::SaslHandshake.accept(b"\0\0\0\x02\0\0").is_err());
        assert!(Step::SaslAuthenticate.accept(b"\0\0\0\x02\0").is_err());
        let versions = Step::ApiVersions.accept(b"\0\0\0\x03\0\0\0\0\0\x01\0\x12\0\0\0\x04");
        assert_eq!(versions, Ok(Some(BTreeMap::from([(18, (0, 4))]))));
    }
}
